-- Consumer, event ids (JSON, sorted, each once). Returns those that are new; a repeat waits until
-- the first receiver's transaction ends. IGNORE hides nothing else: the lengths were checked.
INSERT IGNORE INTO postrider_inbox (consumer, event_id)
SELECT ?, d.event_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    event_id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$'
)) AS d
RETURNING event_id
