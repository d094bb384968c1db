-- $1 maximum rows, newest first.
SELECT event_type, count(*) FROM (
    SELECT event_type FROM "{outbox}_dlq" WHERE NOT resolved ORDER BY id DESC LIMIT $1
) AS newest GROUP BY event_type ORDER BY count(*) DESC, event_type
