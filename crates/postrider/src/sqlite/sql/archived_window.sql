-- The end of the next step of a job: after $1, up to $2, $3 rows.
SELECT max(id) FROM (
    SELECT id FROM "{outbox}_archive" WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3
) AS step
