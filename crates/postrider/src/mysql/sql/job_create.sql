-- Outbox, work, operator, note, rate, canary, max_id, request key.
INSERT INTO postrider_jobs (
    outbox, work, operator, note, rate, canary_count, canary_within_s, max_id, request_key
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
