-- Locks the rows that are unchanged since they were claimed or read: $1 relay, $2 ids ascending, $3
-- versions, $4 event ids.
SELECT o.id FROM unnest($2::bigint[], $3::bigint[], $4::uuid[]) AS d (id, version, event_id)
JOIN "{outbox}" AS o ON o.id = d.id
WHERE o.version = d.version AND o.event_id = d.event_id
  AND (o.locked_by = $1 OR o.locked_by IS NULL)
FOR UPDATE OF o
