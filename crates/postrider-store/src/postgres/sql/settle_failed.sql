-- $1 relay, $2 epoch, $3 ids, $4 versions, $5 delays in ms, $6 errors, $7 durations in ms, $8 event
-- ids. The next attempt is due on the database's clock. Keeps the last 20 attempts of each event.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
failed AS (
    UPDATE "{outbox}" AS o
    SET status = 'FAILED', retry_count = least(o.retry_count + 1, 1000000), crash_count = 0, last_error = f.error,
        next_retry_at = now() + f.delay_ms * interval '1 millisecond',
        locked_by = NULL, locked_at = NULL, updated_at = now(),
        version = (o.version + 1) & 9007199254740991
    FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[],
        $8::uuid[]) AS f (id, version, delay_ms, error, took_ms, event_id)
    WHERE o.id = f.id AND o.version = f.version AND o.event_id = f.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.event_id, o.retry_count, f.error, f.took_ms
),
noted AS (
    INSERT INTO "{outbox}_attempts" (event_id, attempt, error, took_ms, relay_id)
    SELECT event_id, retry_count, error, took_ms, $1 FROM failed
),
trimmed AS (
    DELETE FROM "{outbox}_attempts" AS a USING failed AS f
    WHERE f.retry_count > 20 AND a.event_id = f.event_id AND a.attempt <= f.retry_count - 20
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM failed) AS settled
