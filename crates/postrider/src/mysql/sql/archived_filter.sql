-- An absent filter is NULL, and then a column is compared with itself. All are COMPLETED, and none
-- has an error.
COALESCE(?, 'COMPLETED') = 'COMPLETED' AND event_type = COALESCE(?, event_type)
  AND aggregate_type = COALESCE(?, aggregate_type) AND aggregate_id = COALESCE(?, aggregate_id)
  AND event_id = COALESCE(?, event_id) AND request_id <=> COALESCE(?, request_id)
  AND ? IS NULL
  AND created_at >= COALESCE(?, created_at) AND created_at < COALESCE(?, '9999-12-31')
  AND delivered_at >= COALESCE(?, delivered_at) AND delivered_at < COALESCE(?, '9999-12-31')
  AND COALESCE(? = COALESCE(JSON_EXISTS(headers, '$."postrider-replay"'), FALSE), TRUE)
