SELECT id, epoch, heartbeat, fenced, host,
    CAST((julianday('now') - julianday(started_at)) * 86400000 AS INTEGER) AS age_ms,
    serving
FROM postrider_relays ORDER BY id
