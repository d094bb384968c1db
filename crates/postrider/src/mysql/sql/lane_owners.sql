SELECT owner FROM postrider_lanes WHERE outbox = ? ORDER BY lane
