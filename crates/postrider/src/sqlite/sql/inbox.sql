-- name: receive
-- $1 consumer, $2 event ids (JSON, each once). Returns those that are new.
INSERT INTO postrider_inbox (consumer, event_id)
SELECT $1, value FROM json_each($2) WHERE true
ON CONFLICT DO NOTHING
RETURNING event_id

-- name: receive_dead
-- A message that was received before, with any outcome, does not get a second dead letter.
INSERT INTO postrider_inbox (consumer, event_id, outcome) VALUES ($1, $2, 'dead')
ON CONFLICT DO NOTHING

-- name: receive_letter
INSERT INTO postrider_inbox_dlq
    (consumer, event_id, source, message_key, headers, payload, error_message)
VALUES ($1, $2, $3, $4, $5, $6, $7)

-- name: receive_ledger
INSERT INTO postrider_inbox_ledger (consumer, received_count, ignored_count) VALUES ($1, $2, $3)
ON CONFLICT (consumer) DO UPDATE
SET received_count = received_count + excluded.received_count,
    ignored_count = ignored_count + excluded.ignored_count
