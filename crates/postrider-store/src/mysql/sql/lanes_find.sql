-- The rows of the lanes to read: after, lanes as bits, maximum rows. Reads weight_bytes instead of
-- the columns: rows over the byte limit are not read at all.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id > ? AND (? >> lane) & 1 = 1 AND dead_reason IS NULL
ORDER BY id LIMIT ?
