-- $1 consumer, $2 identities (JSON, each once). The identities that are new.
INSERT INTO postrider_inbox (consumer, event_id)
SELECT $1, value FROM json_each($2) WHERE true
ON CONFLICT DO NOTHING
RETURNING event_id
