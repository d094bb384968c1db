INSERT INTO postrider_relays (id, host, version, serving) VALUES ($1, $2, $3, $4) RETURNING epoch
