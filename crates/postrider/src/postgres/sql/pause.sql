INSERT INTO postrider_pauses (kind, name, operator, note) VALUES ($1, $2, $3, $4)
ON CONFLICT (kind, name) DO NOTHING
