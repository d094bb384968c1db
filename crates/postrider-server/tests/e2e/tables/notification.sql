CREATE TABLE donation_outbox (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, version BIGINT DEFAULT 0,
  request_id VARCHAR(50) NOT NULL UNIQUE, event_type VARCHAR(50) NOT NULL, payload TEXT NOT NULL, content_hash VARCHAR(64) NOT NULL,
  status VARCHAR(20) NOT NULL DEFAULT 'PENDING', locked_by VARCHAR(100), locked_at DATETIME,
  retry_count INT DEFAULT 0, max_retries INT DEFAULT 3, last_error VARCHAR(500), next_retry_at DATETIME, created_at DATETIME, updated_at DATETIME,
  INDEX idx_pending_poll (status, next_retry_at, id), INDEX idx_locked (locked_by, locked_at));
CREATE TABLE donation_dlq (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, original_id BIGINT NOT NULL, request_id VARCHAR(50) NOT NULL, event_type VARCHAR(50) NOT NULL,
  payload TEXT NOT NULL, reason VARCHAR(500), created_at DATETIME, INDEX idx_request_id (request_id));
