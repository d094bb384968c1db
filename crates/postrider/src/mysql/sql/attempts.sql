SELECT attempt, failed_at, error, took_ms, relay_id FROM `{outbox}_attempts`
WHERE event_id = ? ORDER BY failed_at, attempt
