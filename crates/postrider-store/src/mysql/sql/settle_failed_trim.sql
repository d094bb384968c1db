-- Keeps the last 20 attempts of each event; runs before settle_failed counts this one.
DELETE a FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id AND o.retry_count >= 20
STRAIGHT_JOIN `{outbox}_attempts` AS a FORCE INDEX (`{outbox}_attempts_event`)
    ON a.event_id = o.event_id AND a.attempt <= o.retry_count - 19
