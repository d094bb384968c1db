INSERT INTO postrider_inbox_ledger (consumer, received_count, ignored_count) VALUES ($1, $2, $3)
ON CONFLICT (consumer) DO UPDATE
SET received_count = received_count + excluded.received_count,
    ignored_count = ignored_count + excluded.ignored_count
