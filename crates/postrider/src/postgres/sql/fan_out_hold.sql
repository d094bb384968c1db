-- Locks the rows that are as they were claimed or read: $1 relay, $2 ids ascending, $3 versions.
SELECT o.id FROM unnest($2::bigint[], $3::bigint[]) AS d (id, version)
JOIN "{outbox}" AS o ON o.id = d.id
WHERE o.version = d.version AND (o.locked_by = $1 OR o.locked_by IS NULL)
FOR UPDATE OF o
