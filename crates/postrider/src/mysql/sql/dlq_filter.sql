-- An absent filter is NULL, and then a column is compared with itself.
event_id = COALESCE(?, event_id) AND fingerprint = COALESCE(?, fingerprint)
  AND event_type = COALESCE(?, event_type) AND aggregate_type = COALESCE(?, aggregate_type)
  AND aggregate_id = COALESCE(?, aggregate_id)
  AND LOCATE(LOWER(COALESCE(?, '')), LOWER(error_message)) > 0
  AND reason = COALESCE(?, reason) AND resolved = COALESCE(?, resolved)
  AND failed_at >= COALESCE(?, failed_at) AND failed_at < COALESCE(?, '9999-12-31')
