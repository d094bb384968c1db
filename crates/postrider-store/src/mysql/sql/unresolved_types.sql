-- Maximum rows, newest first.
SELECT event_type, count(*) FROM (
    SELECT event_type FROM `{outbox}_dlq` WHERE resolved = 0 ORDER BY id DESC LIMIT ?
) AS newest GROUP BY event_type ORDER BY count(*) DESC, event_type
