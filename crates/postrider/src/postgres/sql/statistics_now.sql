SELECT (SELECT count(*) FROM "{outbox}_dlq" WHERE NOT resolved) AS unresolved,
    (SELECT extract(epoch FROM now() - created_at)::bigint FROM "{outbox}" ORDER BY id LIMIT 1)
        AS oldest_age_s
