-- The end of the next step of a walk: from (excluded), rows.
SELECT MAX(id) FROM (SELECT id FROM `{outbox}` WHERE id > ? ORDER BY id LIMIT ?) AS step
