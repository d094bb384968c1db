SELECT owner FROM postrider_lanes WHERE outbox = $1 ORDER BY lane
