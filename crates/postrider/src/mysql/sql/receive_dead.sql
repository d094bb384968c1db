-- A message that was received before, as whatever, makes no second letter.
INSERT IGNORE INTO postrider_inbox (consumer, event_id, outcome) VALUES (?, ?, 'dead')
