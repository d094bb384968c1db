SELECT name, claim, mode_epoch FROM postrider_outboxes ORDER BY name
