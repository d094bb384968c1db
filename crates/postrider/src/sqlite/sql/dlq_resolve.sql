UPDATE "{outbox}_dlq"
SET resolved = true, resolved_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), resolved_by = $2,
    resolution_note = $3, retried_as = $4, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
WHERE id = $1
