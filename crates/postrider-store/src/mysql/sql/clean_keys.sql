-- Request ids (JSON), locked by clean_keys_find. Not combined with it: a DELETE that reads the
-- outbox takes share locks there, and a claim would skip the rows.
DELETE k FROM JSON_TABLE(?, '$[*]' COLUMNS (
    request_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$'
)) AS d STRAIGHT_JOIN `{outbox}_keys` AS k FORCE INDEX (`{outbox}_keys`)
    ON k.request_id = d.request_id
