-- Counts the events that wait behind keys: keys (JSON, with the head's id or 0), from, to, keys
-- again. The first condition on the keys is a hash lookup, which drops the rows of all other keys
-- before they are compared one by one.
SELECT CAST(k.position AS SIGNED) AS position, COUNT(*) AS waiting, MIN(o.id) AS first_id
FROM `{outbox}` AS o FORCE INDEX (PRIMARY)
STRAIGHT_JOIN JSON_TABLE(?, '$[*]' COLUMNS (
    position FOR ORDINALITY,
    aggregate_type VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]',
    aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]',
    head_id BIGINT PATH '$[2]'
)) AS k ON k.aggregate_type = o.aggregate_type AND k.aggregate_id = o.aggregate_id
    AND o.id > k.head_id
WHERE o.id >= ? AND o.id <= ?
  AND ((o.aggregate_type, o.aggregate_id) IN (
      SELECT aggregate_type, aggregate_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
          aggregate_type VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]',
          aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]'
      )) AS wanted
  )) IS TRUE
GROUP BY k.position
