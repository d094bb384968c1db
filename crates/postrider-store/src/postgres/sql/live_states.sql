-- $1 maximum rows, oldest first.
SELECT event_type, status, count(*) FROM (
    SELECT event_type, status FROM "{outbox}" ORDER BY id LIMIT $1
) AS oldest GROUP BY event_type, status ORDER BY event_type, status
