-- Like lanes_find, without rows that the owner knows (ids) and rows of keys that wait anyway, both
-- as JSON: after, lanes as bits, keys, ids, maximum rows. A session setting makes NOT IN build a
-- hash of each list once; 100,000 rows behind two keys are skipped in 100 ms.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id > ? AND (? >> lane) & 1 = 1 AND dead_reason IS NULL
  AND (aggregate_type, aggregate_id) NOT IN (
      SELECT aggregate_type, aggregate_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
          aggregate_type VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]',
          aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]'
      )) AS hidden
  )
  AND id NOT IN (SELECT id FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS known)
ORDER BY id LIMIT ?
