-- Retention in ms, maximum rows. Only the derived table can skip locked rows; a DELETE cannot.
DELETE a FROM (
    SELECT id, delivered_at FROM `{outbox}_archive` FORCE INDEX (`{outbox}_archive_age`)
    WHERE delivered_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
    ORDER BY delivered_at LIMIT ? FOR UPDATE SKIP LOCKED
) AS old STRAIGHT_JOIN `{outbox}_archive` AS a FORCE INDEX (PRIMARY)
ON a.id = old.id AND a.delivered_at = old.delivered_at
