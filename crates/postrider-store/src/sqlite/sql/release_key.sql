DELETE FROM postrider_parked_keys WHERE outbox = $1 AND aggregate_type = $2 AND aggregate_id = $3
