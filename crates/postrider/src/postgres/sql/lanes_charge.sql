-- Events that were alone in flight when the owner of their lane died: $1 ids.
UPDATE "{outbox}" SET crash_count = greatest(crash_count, 2) + 1, version = version + 1
WHERE id = ANY ($1)
