-- Keeps the last 20 attempts of each event. $1 a JSON array of failures.
DELETE FROM "{outbox}_attempts" WHERE rowid IN (
    SELECT a.rowid
    FROM json_each($1) AS f
    CROSS JOIN "{outbox}" AS o ON o.id = f.value ->> 'id' AND o.event_id = f.value ->> 'event_id'
    CROSS JOIN "{outbox}_attempts" AS a ON a.event_id = o.event_id
    WHERE o.retry_count > 20 AND a.attempt <= o.retry_count - 20
)
