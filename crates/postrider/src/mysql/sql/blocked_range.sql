-- How far a count may look: from, rows.
SELECT COUNT(*), MAX(id) FROM (
    SELECT id FROM `{outbox}` FORCE INDEX (PRIMARY) WHERE id >= ? ORDER BY id LIMIT ?
) AS scanned
