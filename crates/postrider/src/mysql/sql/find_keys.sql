-- The request ids (JSON) of a refused batch that are known. Not a locking read: for unknown ids it
-- would lock a gap against other writers. The result is only a hint for splitting the batch.
SELECT k.request_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    request_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$'
)) AS d STRAIGHT_JOIN `{outbox}_keys` AS k FORCE INDEX (`{outbox}_keys`)
    ON k.request_id = d.request_id
