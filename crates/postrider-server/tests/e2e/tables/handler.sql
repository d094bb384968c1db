CREATE TABLE outbox_event (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, event_type VARCHAR(100) NOT NULL, aggregate_type VARCHAR(100) NOT NULL, aggregate_id VARCHAR(255) NOT NULL,
  payload TEXT NOT NULL, processed BOOLEAN NOT NULL DEFAULT FALSE, processed_at DATETIME, error_message TEXT,
  retry_count INT NOT NULL DEFAULT 0, created_at DATETIME NOT NULL, updated_at DATETIME NOT NULL);
CREATE TABLE outbox_event_dlq (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, original_event_id BIGINT NOT NULL, event_type VARCHAR(100) NOT NULL, aggregate_type VARCHAR(100) NOT NULL,
  aggregate_id VARCHAR(255) NOT NULL, payload TEXT NOT NULL, error_message TEXT NOT NULL, failed_at DATETIME NOT NULL, retry_count INT NOT NULL,
  resolved BOOLEAN NOT NULL DEFAULT FALSE, resolved_at DATETIME, resolved_by VARCHAR(100), resolution_note TEXT,
  created_at DATETIME NOT NULL, updated_at DATETIME NOT NULL,
  INDEX idx_dlq_resolved (resolved), INDEX idx_dlq_event_type (event_type), INDEX idx_dlq_failed_at (failed_at));
