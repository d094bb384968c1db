-- The job id; archived row ids with their event ids, as JSON. The copy keeps event id, request id
-- and hash; the trigger accepts it because redrive_count is above zero, and reports the new row
-- ids. After a TRUNCATE or a restore several archived events may share a row id, so the row id
-- alone does not identify one.
INSERT INTO `{child}` (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, redrive_count
)
SELECT o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    JSON_SET(COALESCE(o.headers, '{}'), '$."postrider-replay"', ?), o.content_hash,
    LEAST(GREATEST(o.redrive_count, 0), 999999) + 1
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    position FOR ORDINALITY, id BIGINT PATH '$[0]', event_id CHAR(36) PATH '$[1]'
)) AS d
STRAIGHT_JOIN `{outbox}_archive` AS o FORCE INDEX (PRIMARY)
    ON o.id = d.id AND o.event_id = CONVERT(d.event_id USING ascii) COLLATE ascii_bin
WHERE o.delivered_at = (
    SELECT MAX(a.delivered_at) FROM `{outbox}_archive` AS a FORCE INDEX (PRIMARY)
    WHERE a.id = o.id AND a.event_id = o.event_id
)
ORDER BY d.position
