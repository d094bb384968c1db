-- One step of a walk over the table: $1 relay, $2 epoch, $3 from (excluded), $4 to (included), $5
-- in flight. Fenced like a settle: after a take-over only recovery may change the rows.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
released AS (
    UPDATE "{outbox}" SET status = 'PENDING', next_retry_at = now(),
        locked_by = NULL, locked_at = NULL, version = (version + 1) & 9007199254740991
    WHERE id > $3 AND id <= $4 AND status = 'PROCESSING' AND locked_by = $1 AND id <> ALL ($5)
      AND EXISTS (SELECT 1 FROM relay)
    RETURNING id
)
SELECT (SELECT count(*) FROM relay) AS held, (SELECT count(*) FROM released) AS settled
