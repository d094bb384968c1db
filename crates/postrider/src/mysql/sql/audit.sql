INSERT INTO postrider_audit (operator, action, outbox, target, detail) VALUES (?, ?, ?, ?, ?)
