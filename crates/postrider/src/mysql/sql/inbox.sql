-- name: receive
-- Consumer, event ids (JSON, sorted, each once). A repeat waits until the first receiver's
-- transaction ends. MariaDB returns those that are new; IGNORE hides nothing else: the lengths were
-- checked. MySQL cannot return them, and refuses all of them (1062) if one is known.
INSERT /*M! IGNORE */ INTO postrider_inbox (consumer, event_id)
SELECT ?, d.event_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    event_id VARCHAR(100) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$'
)) AS d
/*M! RETURNING event_id */

-- name: receive_known
-- Event ids (JSON), consumer. Those that the snapshot has. Not a locking read: for unknown ids it
-- would lock a gap against other consumers.
SELECT i.event_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    event_id VARCHAR(100) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$'
)) AS d STRAIGHT_JOIN postrider_inbox AS i FORCE INDEX (PRIMARY)
    ON i.consumer = ? AND i.event_id = d.event_id

-- name: receive_one
INSERT IGNORE INTO postrider_inbox (consumer, event_id) VALUES (?, ?)

-- name: receive_dead
-- A message that was received before, with any outcome, does not get a second dead letter.
INSERT IGNORE INTO postrider_inbox (consumer, event_id, outcome) VALUES (?, ?, 'dead')

-- name: receive_letter
INSERT INTO postrider_inbox_dlq
    (consumer, event_id, source, message_key, headers, payload, error_message)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: receive_ledger
INSERT INTO postrider_inbox_ledger (consumer, received_count, ignored_count) VALUES (?, ?, ?)
