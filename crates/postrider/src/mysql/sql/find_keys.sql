-- Which of the request ids (JSON) of a refused batch are known. No lock: for those that are not
-- known it would close a gap to other writers. The answer is only a hint for splitting the batch.
SELECT k.request_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
    request_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$'
)) AS d STRAIGHT_JOIN `{outbox}_keys` AS k FORCE INDEX (`{outbox}_keys`)
    ON k.request_id = d.request_id
