-- The rows that are unchanged since they were claimed or read: $1 relay, $2 a JSON object that maps
-- an id to its version and event id, in one text that is compared at once. In mode `rows` the relay
-- holds them, in `lanes` no relay does. The same transaction then adds exactly these rows to the
-- ledger and removes them.
SELECT json_group_array(o.id) AS ids
FROM json_each($2) AS d CROSS JOIN "{outbox}" AS o ON o.id = CAST(d.key AS INTEGER)
WHERE d.value = o.version || ' ' || o.event_id AND (o.locked_by = $1 OR o.locked_by IS NULL)
