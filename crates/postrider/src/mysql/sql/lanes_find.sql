-- Which rows of the lanes to read: after, lanes as bits, rows. weight_bytes instead of the columns:
-- rows over the limit of bytes are not read at all.
SELECT id, weight_bytes FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id > ? AND (? >> lane) & 1 = 1 AND dead_reason IS NULL
ORDER BY id LIMIT ?
