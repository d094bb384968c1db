-- Maximum rows, oldest first.
SELECT event_type, status, count(*) FROM (
    SELECT event_type, status FROM `{outbox}` ORDER BY id LIMIT ?
) AS oldest GROUP BY event_type, status ORDER BY event_type, status
