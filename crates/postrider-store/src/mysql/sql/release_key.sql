DELETE FROM postrider_parked_keys WHERE outbox = ? AND aggregate_type = ? AND aggregate_id = ?
