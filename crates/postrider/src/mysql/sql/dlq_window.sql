-- The end of the next step of a job: after an id, up to another, rows.
SELECT MAX(id) FROM (
    SELECT id FROM `{outbox}_dlq` FORCE INDEX (PRIMARY)
    WHERE id > ? AND id <= ? ORDER BY id LIMIT ?
) AS step
