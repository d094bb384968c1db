-- Counts deleted identities of one consumer: consumer, applied, dead.
INSERT INTO postrider_inbox_books
    (consumer, received_count, ignored_count, applied_count, dead_count)
VALUES (?, 0, 0, ?, ?)
