-- A message that was received before, as whatever, makes no second letter.
INSERT INTO postrider_inbox (consumer, event_id, outcome) VALUES ($1, $2, 'dead')
ON CONFLICT DO NOTHING
