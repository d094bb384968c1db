-- Ids and fingerprints, as JSON.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    fingerprint VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]'
)) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.fingerprint = d.fingerprint
