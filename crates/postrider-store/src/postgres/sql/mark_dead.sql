-- The dead-letter table could not take the event. The row stays until maintenance moves it.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
marked AS (
    UPDATE "{outbox}" AS o
    SET status = 'DEAD_LETTER', dead_reason = d.reason, last_error = left(d.message, 500),
        retry_count = least(o.retry_count + d.attempted::integer, 1000000), crash_count = 0,
        locked_by = NULL, locked_at = NULL, version = (o.version + 1) & 9007199254740991, updated_at = now()
    FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::boolean[],
        $9::text[], $10::uuid[])
        AS d (id, version, reason, message, detail, attempted, fingerprint, event_id)
    WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
      AND (o.locked_by = $1 OR o.locked_by IS NULL)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING o.id
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM marked) AS settled
