-- Events that were alone in flight when the owner of their lane died: $1 ids. With a time to try
-- again, so that mode `rows` too takes them for suspects.
UPDATE "{outbox}"
SET crash_count = least(greatest(crash_count, 2) + 1, 1000000), version = (version + 1) & 9007199254740991,
    next_retry_at = coalesce(next_retry_at, now())
WHERE id = ANY ($1)
