-- name: receive
-- Consumer, event ids (JSON, sorted, each once). Returns those that are new; a repeat waits until
-- the first receiver's transaction ends. IGNORE hides nothing else: the lengths were checked.
INSERT IGNORE INTO postrider_inbox (consumer, event_id)
SELECT ?, d.event_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    event_id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$'
)) AS d
RETURNING event_id

-- name: receive_dead
-- A message that was received before, with any outcome, does not get a second dead letter.
INSERT IGNORE INTO postrider_inbox (consumer, event_id, outcome) VALUES (?, ?, 'dead')

-- name: receive_letter
INSERT INTO postrider_inbox_dlq
    (consumer, event_id, source, message_key, headers, payload, error_message)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: receive_ledger
INSERT INTO postrider_inbox_ledger (consumer, received_count, ignored_count) VALUES (?, ?, ?)
