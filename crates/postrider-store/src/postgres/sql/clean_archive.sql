-- Deletes rows outside of the day partitions, or all of them if partitions may not be dropped.
DELETE FROM "{outbox}_archive" WHERE (id, delivered_at) IN (
    SELECT id, delivered_at FROM "{outbox}_archive"
    WHERE delivered_at < now() - $1 * interval '1 millisecond' LIMIT $2
)
