SELECT EXISTS (
    SELECT 1 FROM "{outbox}" INDEXED BY "{outbox}_suspects"
    WHERE crash_count >= 2 AND status IN ('PENDING', 'FAILED')
      AND (next_retry_at IS NULL OR next_retry_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
)
