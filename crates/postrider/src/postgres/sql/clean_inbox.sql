-- $1 age in ms, $2 maximum rows, $3 consumer (NULL: all). Deletes identities and counts them in the
-- ledger, in one transaction. The identity of a message with an unresolved dead letter is kept: the
-- broker may send it again.
WITH forgotten AS (
    DELETE FROM postrider_inbox WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM postrider_inbox AS i
        WHERE i.received_at < now() - $1 * interval '1 millisecond'
          AND ($3::text IS NULL OR i.consumer = $3)
          AND (i.outcome = 'applied' OR NOT EXISTS (
              SELECT 1 FROM postrider_inbox_dlq AS d
              WHERE d.consumer = i.consumer AND d.event_id = i.event_id AND d.resolved_at IS NULL))
        ORDER BY i.received_at LIMIT $2 FOR UPDATE OF i SKIP LOCKED
    ))
    RETURNING consumer, outcome
),
booked AS (
    INSERT INTO postrider_inbox_books
        (consumer, received_count, ignored_count, applied_count, dead_count)
    SELECT consumer, 0, 0, count(*) FILTER (WHERE outcome = 'applied'),
           count(*) FILTER (WHERE outcome = 'dead')
    FROM forgotten GROUP BY consumer
)
SELECT count(*) FROM forgotten
