-- A message that was received before, with any outcome, does not get a second dead letter.
INSERT INTO postrider_inbox (consumer, event_id, outcome) VALUES ($1, $2, 'dead')
ON CONFLICT DO NOTHING
