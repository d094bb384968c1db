DELETE a FROM (
    SELECT id FROM `{outbox}_attempts` FORCE INDEX (`{outbox}_attempts_age`)
    WHERE failed_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
    ORDER BY failed_at LIMIT ? FOR UPDATE SKIP LOCKED
) AS old STRAIGHT_JOIN `{outbox}_attempts` AS a FORCE INDEX (PRIMARY) ON a.id = old.id
