-- name: next_id_step
-- The next step of a walk over the rows that relays hold: $1 from (excluded), $2 maximum rows. Read
-- without the write lock; the statement that follows checks each row again.
SELECT max(id) AS until, json_group_array(id) AS ids FROM (
    SELECT id FROM "{outbox}" WHERE id > $1 AND status = 'PROCESSING' ORDER BY id LIMIT $2
)
