CREATE TABLE nexon_api_outbox (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, version BIGINT DEFAULT 0,
  ocid VARCHAR(100) NOT NULL, endpoint VARCHAR(200) NOT NULL, request_payload TEXT, response_payload TEXT,
  status VARCHAR(20) NOT NULL DEFAULT 'PENDING', locked_by VARCHAR(100), locked_at DATETIME,
  retry_count INT DEFAULT 0, max_retries INT DEFAULT 10, last_error VARCHAR(500), next_retry_at DATETIME,
  created_at DATETIME DEFAULT CURRENT_TIMESTAMP, updated_at DATETIME DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  INDEX idx_pending_retry (status, next_retry_at, id), INDEX idx_ocid (ocid), INDEX idx_locked (locked_by, locked_at));
CREATE TABLE nexon_api_dlq (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, original_id BIGINT NOT NULL, ocid VARCHAR(100) NOT NULL, endpoint VARCHAR(200) NOT NULL,
  request_payload TEXT, error_message VARCHAR(1000), error_stack TEXT, created_at DATETIME DEFAULT CURRENT_TIMESTAMP,
  INDEX idx_ocid (ocid), INDEX idx_created_at (created_at));
