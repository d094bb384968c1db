-- $1 relay, $2 epoch, $3 ids ascending, $4 versions, $5 event ids. The share lock on the relay's
-- row does the fencing: with a mere check of the epoch, a settle would still write after a
-- take-over that commits in between. The version shows whether the row is unchanged since it was
-- claimed or read; in mode `rows` this relay holds it, in `lanes` no relay does. The event id shows
-- whether it is the same event: ids may be reused, and most versions are 0.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
gone AS (
    DELETE FROM "{outbox}" AS o
    USING unnest($3::bigint[], $4::bigint[], $5::uuid[]) AS d (id, version, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.id, o.event_type, o.created_at
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT date_trunc('minute', created_at), event_type, 'delivered', count(*), sum(id)
    FROM gone GROUP BY 1, 2
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM gone) AS settled
