-- Remembers the dead letters that clean_dlq_find locked (ids as JSON), so that importing a backup
-- file does not restore them.
INSERT INTO `{outbox}_closed` (original_id, event_id)
SELECT a.original_id, a.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS a FORCE INDEX (PRIMARY) ON a.id = d.id
ON DUPLICATE KEY UPDATE closed_at = UTC_TIMESTAMP(6)
