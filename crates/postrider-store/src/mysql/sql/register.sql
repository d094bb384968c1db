INSERT INTO postrider_relays (id, host, version, serving, epoch) VALUES (?, ?, ?, ?, ?)
