SELECT EXISTS (
    SELECT 1 FROM `{outbox}` FORCE INDEX (`{outbox}_waiting`)
    WHERE queue >= 2 AND (next_retry_at IS NULL OR next_retry_at <= UTC_TIMESTAMP(6))
      AND status IN ('PENDING', 'FAILED')
)
