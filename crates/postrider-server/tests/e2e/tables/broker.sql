CREATE TABLE transfer_events (
  event_id BIGSERIAL PRIMARY KEY, aggregate_type VARCHAR(50) NOT NULL, aggregate_id VARCHAR(100) NOT NULL, event_type VARCHAR(50) NOT NULL,
  payload TEXT NOT NULL, headers TEXT, status VARCHAR(20) NOT NULL DEFAULT 'PENDING', attempt_count INT NOT NULL DEFAULT 0,
  next_retry_at TIMESTAMP NOT NULL DEFAULT NOW(), created_at TIMESTAMP NOT NULL DEFAULT NOW(), updated_at TIMESTAMP NOT NULL DEFAULT NOW(),
  published_at TIMESTAMP, last_error TEXT);
CREATE INDEX idx_outbox_pending ON transfer_events (status, next_retry_at) WHERE status IN ('PENDING', 'FAILED');
CREATE INDEX idx_transfer_events_created ON transfer_events (created_at);
