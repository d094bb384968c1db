-- The last id of the next step of a walk: $1 from (excluded), $2 maximum rows.
SELECT max(id) FROM (SELECT id FROM "{outbox}" WHERE id > $1 ORDER BY id LIMIT $2) AS step
