-- Events that were alone in flight when the owner of their lane died: $1 ids. Sets next_retry_at,
-- so that mode `rows` treats them as suspects too.
UPDATE "{outbox}"
SET crash_count = least(greatest(crash_count, 2) + 1, 1000000), version = (version + 1) & 9007199254740991,
    next_retry_at = coalesce(next_retry_at, now())
WHERE id = ANY ($1)
