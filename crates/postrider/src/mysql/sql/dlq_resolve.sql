UPDATE `{outbox}_dlq`
SET resolved = 1, resolved_at = UTC_TIMESTAMP(6), resolved_by = ?, resolution_note = ?,
    retried_as = ?, updated_at = UTC_TIMESTAMP(6)
WHERE id = ?
