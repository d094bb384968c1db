-- $1 relay, $2 epoch, $3 outbox, $4 and $5 the keys.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
parked AS (
    INSERT INTO postrider_parked_keys (outbox, aggregate_type, aggregate_id)
    SELECT $3, t.aggregate_type, t.aggregate_id
    FROM unnest($4::text[], $5::text[]) AS t (aggregate_type, aggregate_id)
    WHERE EXISTS (SELECT 1 FROM relay)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM parked) AS settled
