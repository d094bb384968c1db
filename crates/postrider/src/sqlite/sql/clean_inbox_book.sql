-- Counts deleted identities of one consumer: $1 consumer, $2 applied, $3 dead.
INSERT INTO postrider_inbox_books
    (consumer, received_count, ignored_count, applied_count, dead_count)
VALUES ($1, 0, 0, $2, $3)
ON CONFLICT (consumer) DO UPDATE
SET applied_count = applied_count + excluded.applied_count,
    dead_count = dead_count + excluded.dead_count
