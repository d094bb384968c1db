-- Events that were alone in flight when the owner of their lane died: $1 ids. Sets next_retry_at,
-- so that mode `rows` treats them as suspects too.
UPDATE "{outbox}"
SET crash_count = min(max(crash_count, 2) + 1, 1000000), version = (version + 1) & 9007199254740991,
    next_retry_at = coalesce(next_retry_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
WHERE id IN (SELECT value FROM json_each($1))
