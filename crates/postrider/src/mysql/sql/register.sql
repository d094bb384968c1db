INSERT INTO postrider_relays (id, host, version, epoch) VALUES (?, ?, ?, ?)
