-- The range that a count may read: from, maximum rows.
SELECT COUNT(*), MAX(id) FROM (
    SELECT id FROM `{outbox}` FORCE INDEX (PRIMARY) WHERE id >= ? ORDER BY id LIMIT ?
) AS scanned
