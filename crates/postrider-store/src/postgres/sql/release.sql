-- $1 relay, $2 epoch, $3 ids, $4 versions, $5 delays in ms, $6 errors (NULL: not tried), $7 event
-- ids. next_retry_at is always set, because the scan for fresh rows has passed this id already.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
released AS (
    UPDATE "{outbox}" AS o
    SET status = 'PENDING', next_retry_at = now() + d.delay_ms * interval '1 millisecond',
        crash_count = CASE WHEN d.error IS NULL THEN o.crash_count ELSE 0 END,
        last_error = coalesce(d.error, o.last_error),
        locked_by = NULL, locked_at = NULL, version = (o.version + 1) & 9007199254740991,
        updated_at = CASE WHEN d.error IS NULL THEN o.updated_at ELSE now() END
    FROM unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::uuid[])
        AS d (id, version, delay_ms, error, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.id
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM released) AS settled
