INSERT INTO postrider_relays (id, host, version) VALUES ($1, $2, $3) RETURNING epoch
