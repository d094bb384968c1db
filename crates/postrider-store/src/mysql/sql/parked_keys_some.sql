SELECT aggregate_type, aggregate_id FROM postrider_parked_keys WHERE outbox = ? LIMIT ?
