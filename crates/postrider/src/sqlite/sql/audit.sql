INSERT INTO postrider_audit (operator, action, outbox, target, detail) VALUES ($1, $2, $3, $4, $5)
