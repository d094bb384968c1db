-- $1 archived row ids with their event ids, $2 the job id. The copy keeps event id, request id and
-- hash; the trigger accepts it because redrive_count is above zero. After a restore several
-- archived events may share a row id, so the row id alone does not identify one.
INSERT INTO "{child}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, redrive_count
)
SELECT o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    json_set(coalesce(o.headers, '{}'), '$."postrider-replay"', $2), o.content_hash,
    min(max(o.redrive_count, 0), 999999) + 1
FROM json_each($1) AS d
CROSS JOIN "{outbox}_archive" AS o ON o.id = d.value ->> 0 AND o.event_id = d.value ->> 1
WHERE o.delivered_at = (
    SELECT max(a.delivered_at) FROM "{outbox}_archive" AS a
    WHERE a.id = o.id AND a.event_id = o.event_id
)
ORDER BY d.key
RETURNING id, event_id
