SELECT EXISTS (
    SELECT 1 FROM "{outbox}"
    WHERE crash_count >= 2 AND status IN ('PENDING', 'FAILED')
      AND (next_retry_at IS NULL OR next_retry_at <= now())
)
