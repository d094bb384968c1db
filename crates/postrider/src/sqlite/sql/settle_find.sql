-- Which of the given rows are as they were claimed or read: $1 relay, $2 a JSON object of id:
-- version and identity, in one text that is compared at once. In mode `rows` they are the relay's
-- own, in `lanes` nobody's. The same transaction then books and removes exactly these.
SELECT json_group_array(o.id) AS ids
FROM json_each($2) AS d CROSS JOIN "{outbox}" AS o ON o.id = CAST(d.key AS INTEGER)
WHERE d.value = o.version || ' ' || o.event_id AND (o.locked_by = $1 OR o.locked_by IS NULL)
