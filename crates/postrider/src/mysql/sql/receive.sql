-- Consumer, identities (JSON, sorted, each once). The identities that are new; a repeat waits for the
-- end of whoever received it first. IGNORE hides nothing else: the values were checked for length.
INSERT IGNORE INTO postrider_inbox (consumer, event_id)
SELECT ?, d.event_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    event_id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$'
)) AS d
RETURNING event_id
