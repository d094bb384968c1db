-- An absent filter is NULL, and then a column is compared with itself. No live event is delivered:
-- the last two.
status = COALESCE(?, status) AND event_type = COALESCE(?, event_type)
  AND aggregate_type = COALESCE(?, aggregate_type) AND aggregate_id = COALESCE(?, aggregate_id)
  AND event_id = COALESCE(?, event_id) AND request_id <=> COALESCE(?, request_id)
  AND LOCATE(LOWER(COALESCE(?, '')), LOWER(COALESCE(last_error, ''))) > 0
  AND created_at >= COALESCE(?, created_at) AND created_at < COALESCE(?, '9999-12-31')
  AND ? IS NULL AND ? IS NULL
  AND COALESCE(? = COALESCE(JSON_EXISTS(headers, '$."postrider-replay"'), FALSE), TRUE)
