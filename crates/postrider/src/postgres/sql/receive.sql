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
