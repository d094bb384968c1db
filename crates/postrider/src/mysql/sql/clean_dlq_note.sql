-- Ids (JSON), locked by clean_dlq_find. What they were stays known, so that a backup file does not
-- bring them back.
INSERT INTO `{outbox}_closed` (original_id, event_id)
SELECT a.original_id, a.event_id
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS a FORCE INDEX (PRIMARY) ON a.id = d.id
ON DUPLICATE KEY UPDATE closed_at = UTC_TIMESTAMP(6)
