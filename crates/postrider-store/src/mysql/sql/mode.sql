SELECT claim, mode_epoch FROM postrider_outboxes WHERE name = ?
