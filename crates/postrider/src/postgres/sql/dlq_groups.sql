-- By kind of error, event type and hour, with ids from $11 to below $12. date_part, not extract:
-- that one is numeric, and slower by half.
SELECT fingerprint, event_type, date_part('epoch', failed_at)::bigint / 3600 AS hour,
    count(*), max(id), min(failed_at), max(failed_at)
FROM "{outbox}_dlq"
WHERE {filter} AND id >= $11 AND id < $12
GROUP BY 1, 2, 3
