SELECT id, epoch, heartbeat, fenced, host,
    TIMESTAMPDIFF(MICROSECOND, started_at, UTC_TIMESTAMP(6)) DIV 1000 AS age_ms, serving
FROM postrider_relays ORDER BY id
