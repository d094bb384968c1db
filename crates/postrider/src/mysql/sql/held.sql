-- Locks the rows of a batch that are as they were claimed or read: ids, versions and identities
-- (JSON, ids ascending), relay. In mode `rows` they are the relay's own, in `lanes` nobody's. What
-- this answers is settled, and booked where it leaves; the rest was settled before, is somebody
-- else's, or is another event under an id that came again.
SELECT o.id, o.event_type, o.created_at
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', version BIGINT PATH '$[1]',
    event_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
WHERE o.version = d.version AND o.event_id = d.event_id
  AND (o.locked_by = ? OR o.locked_by IS NULL)
FOR UPDATE
