-- $1 a JSON array of ids and row ids of the fresh events, $2 operator, $3 note.
UPDATE "{outbox}_dlq" AS o
SET resolved = true, resolved_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), resolved_by = $2,
    resolution_note = $3, retried_as = d.value ->> 1,
    updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
FROM json_each($1) AS d
WHERE o.id = d.value ->> 0
