-- Like settle_delivered_delete, but keeps the rows in the archive.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
gone AS (
    DELETE FROM "{outbox}" AS o
    USING unnest($3::bigint[], $4::bigint[], $5::uuid[]) AS d (id, version, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.*
),
archived AS (
    INSERT INTO "{outbox}_archive" (
        id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
        content_hash, retry_count, redrive_count, created_at, delivered_at,
        response
    )
    SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
        content_hash, retry_count, redrive_count, created_at, now(), response
    FROM gone
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT date_trunc('minute', created_at), event_type, 'delivered', count(*), sum(id)
    FROM gone GROUP BY 1, 2
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM gone) AS settled
