-- What was sent again cannot be taken back.
UPDATE "{outbox}_dlq"
SET resolved = false, resolved_at = NULL, resolved_by = NULL, resolution_note = NULL,
    updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = $1 AND resolved AND retried_as IS NULL
