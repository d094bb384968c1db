SELECT at, operator, action, outbox, target, detail FROM postrider_audit ORDER BY id DESC LIMIT ?
