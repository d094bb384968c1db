-- $1 largest id of the entries, $2 maximum entries. Sums up entries into one per consumer, in one
-- transaction, so that a reader's snapshot has each exactly once.
WITH taken AS (
    DELETE FROM postrider_inbox_books WHERE id = ANY (ARRAY(
        SELECT id FROM postrider_inbox_books WHERE id <= $1
        ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
    ))
    RETURNING consumer, received_count, ignored_count, applied_count, dead_count
),
folded AS (
    INSERT INTO postrider_inbox_books
        (consumer, received_count, ignored_count, applied_count, dead_count)
    SELECT consumer, sum(received_count), sum(ignored_count), sum(applied_count), sum(dead_count)
    FROM taken GROUP BY consumer
)
SELECT count(*) FROM taken
