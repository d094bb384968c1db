-- The next step of a walk over the rows that somebody holds: $1 from (excluded), $2 rows. Read
-- without the write lock; the step that follows looks at each of these again.
SELECT max(id) AS until, json_group_array(id) AS ids FROM (
    SELECT id FROM "{outbox}" WHERE id > $1 AND status = 'PROCESSING' ORDER BY id LIMIT $2
)
