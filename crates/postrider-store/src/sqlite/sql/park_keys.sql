-- $1 outbox, $2 a JSON array of keys.
INSERT INTO postrider_parked_keys (outbox, aggregate_type, aggregate_id)
SELECT $1, value ->> 0, value ->> 1 FROM json_each($2) WHERE true
ON CONFLICT DO NOTHING
