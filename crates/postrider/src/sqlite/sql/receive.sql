-- $1 consumer, $2 event ids (JSON, each once). Returns those that are new.
INSERT INTO postrider_inbox (consumer, event_id)
SELECT $1, value FROM json_each($2) WHERE true
ON CONFLICT DO NOTHING
RETURNING event_id
