-- Rows (JSON: consumer, identity), locked by clean_inbox_find.
DELETE i FROM JSON_TABLE(?, '$[*]' COLUMNS (
    consumer VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]',
    event_id VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]'
)) AS d STRAIGHT_JOIN postrider_inbox AS i FORCE INDEX (PRIMARY)
    ON i.consumer = d.consumer AND i.event_id = d.event_id
