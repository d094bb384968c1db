-- The rows of some keys to read: from, to (inclusive), keys (JSON), maximum rows. IS TRUE keeps the
-- planner from using a join, which would compare each row with each key.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id >= ? AND id <= ? AND dead_reason IS NULL
  AND ((aggregate_type, aggregate_id) IN (
      SELECT aggregate_type, aggregate_id FROM JSON_TABLE(?, '$[*]' COLUMNS (
          aggregate_type VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]',
          aggregate_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]'
      )) AS wanted
  )) IS TRUE
ORDER BY id LIMIT ?
