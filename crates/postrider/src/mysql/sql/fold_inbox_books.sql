-- Sums up entries (ids as JSON, locked by fold_inbox_books_find) into one per consumer.
INSERT INTO postrider_inbox_books
    (consumer, received_count, ignored_count, applied_count, dead_count)
SELECT * FROM (
    SELECT b.consumer, SUM(b.received_count), SUM(b.ignored_count), SUM(b.applied_count),
           SUM(b.dead_count)
    FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$')) AS d
    STRAIGHT_JOIN postrider_inbox_books AS b FORCE INDEX (PRIMARY) ON b.id = d.id
    GROUP BY b.consumer
) AS sums
