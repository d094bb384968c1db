-- The mark; ids in the archive with their identities, as JSON. Identity, request id and hash stay; the
-- trigger lets it pass because redrive_count is above zero, and tells the new ids. After a TRUNCATE or
-- a restore several archived events have the same id, so an id alone does not say which one is meant.
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
