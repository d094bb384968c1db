-- A message that was received before, with any outcome, does not get a second dead letter.
INSERT IGNORE INTO postrider_inbox (consumer, event_id, outcome) VALUES (?, ?, 'dead')
