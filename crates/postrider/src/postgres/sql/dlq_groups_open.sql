-- As dlq_groups, of all unresolved ones, from the index alone: ids from $1 to below $2.
SELECT fingerprint, event_type, date_part('epoch', failed_at)::bigint / 3600 AS hour,
    count(*), max(id), min(failed_at), max(failed_at)
FROM "{outbox}_dlq"
WHERE NOT resolved AND id >= $1 AND id < $2
GROUP BY 1, 2, 3
