-- $1 ids, $2 row ids of the fresh events, $3 operator, $4 note.
UPDATE "{outbox}_dlq" AS o
SET resolved = true, resolved_at = now(), resolved_by = $3, resolution_note = $4,
    retried_as = d.retried_as, updated_at = now()
FROM unnest($1::bigint[], $2::bigint[]) AS d (id, retried_as)
WHERE o.id = d.id
