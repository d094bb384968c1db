-- One step of a walk over the table: $1 relay, $2 from (excluded), $3 to (included), $4 in flight.
UPDATE "{outbox}" SET status = 'PENDING', next_retry_at = now(),
    locked_by = NULL, locked_at = NULL, version = version + 1
WHERE id > $2 AND id <= $3 AND status = 'PROCESSING' AND locked_by = $1 AND id <> ALL ($4)
