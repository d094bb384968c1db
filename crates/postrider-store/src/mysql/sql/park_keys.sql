-- Outbox, keys (JSON). A key that is parked already is not changed (INSERT IGNORE would hide other
-- errors too).
INSERT INTO postrider_parked_keys (outbox, aggregate_type, aggregate_id)
SELECT ?, t.aggregate_type, t.aggregate_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    aggregate_type VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]',
    aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]'
)) AS t
ON DUPLICATE KEY UPDATE postrider_parked_keys.outbox = postrider_parked_keys.outbox
