-- What was sent again cannot be taken back.
UPDATE `{outbox}_dlq`
SET resolved = 0, resolved_at = NULL, resolved_by = NULL, resolution_note = NULL,
    updated_at = UTC_TIMESTAMP(6)
WHERE id = ? AND resolved = 1 AND retried_as IS NULL
