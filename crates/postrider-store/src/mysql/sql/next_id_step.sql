-- The last id of the next step of a walk: from (excluded), maximum rows.
SELECT MAX(id) FROM (SELECT id FROM `{outbox}` WHERE id > ? ORDER BY id LIMIT ?) AS step
