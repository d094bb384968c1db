-- $1 relay, $2 epoch, $3 ids, $4 versions, $5 reasons, $6 messages, $7 details, $8 attempted, $9
-- fingerprints, $10 event ids.
-- A row leaves the outbox only together with its dead letter. An expiry time that no program can
-- read (infinity) becomes NULL.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
gone AS (
    DELETE FROM "{outbox}" AS o
    USING unnest($3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::boolean[],
        $9::text[], $10::uuid[])
        AS d (id, version, reason, message, detail, attempted, fingerprint, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.*, d.reason, d.message, d.detail, d.attempted, d.fingerprint
),
moved AS (
    INSERT INTO "{outbox}_dlq" (
        original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
        headers, content_hash, reason, error_message, error_detail, failed_at, retry_count,
        max_retries, redrive_count, event_created_at, expires_at, fingerprint
    )
    SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
        headers, content_hash, reason, message, detail, now(), retry_count + attempted::integer,
        max_retries, redrive_count, created_at,
        CASE WHEN expires_at BETWEEN '0001-01-01Z' AND '9999-12-31Z' THEN expires_at END, fingerprint
    FROM gone
    ON CONFLICT (original_id, event_id) DO NOTHING
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT date_trunc('minute', created_at), event_type, 'dead', count(*), sum(id)
    FROM gone GROUP BY 1, 2
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM gone) AS settled
