-- Names (JSON), locked by clean_locks_find. A session that waits for one of them inserts it again.
DELETE l FROM JSON_TABLE(?, '$[*]' COLUMNS (
    name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$'
)) AS d STRAIGHT_JOIN postrider_locks AS l FORCE INDEX (PRIMARY) ON l.name = d.name
