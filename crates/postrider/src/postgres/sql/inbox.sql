-- name: receive
-- $1 consumer, $2 event ids (sorted, each once), $3 number of messages. Returns the event ids that
-- are new; a repeat waits until the first receiver's transaction ends.
WITH fresh AS (
    INSERT INTO postrider_inbox (consumer, event_id)
    SELECT $1, e.event_id FROM unnest($2::text[]) AS e (event_id)
    ON CONFLICT DO NOTHING
    RETURNING event_id
),
recorded AS (
    INSERT INTO postrider_inbox_ledger (consumer, received_count, ignored_count)
    SELECT $1, $3, $3 - (SELECT count(*) FROM fresh)
)
SELECT event_id FROM fresh

-- name: receive_dead
-- $1 consumer, $2 event id, $3 source, $4 key, $5 headers, $6 payload, $7 error. Returns whether it
-- is new: a message that was received before, with any outcome, does not get a second dead letter.
WITH fresh AS (
    INSERT INTO postrider_inbox (consumer, event_id, outcome) VALUES ($1, $2, 'dead')
    ON CONFLICT DO NOTHING
    RETURNING event_id
),
recorded AS (
    INSERT INTO postrider_inbox_ledger (consumer, received_count, ignored_count)
    SELECT $1, 1, 1 - (SELECT count(*) FROM fresh)
),
letter AS (
    INSERT INTO postrider_inbox_dlq
        (consumer, event_id, source, message_key, headers, payload, error_message)
    SELECT $1, $2, $3, $4, $5, $6, $7 FROM fresh
)
SELECT count(*) > 0 FROM fresh
