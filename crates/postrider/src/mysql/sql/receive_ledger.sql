INSERT INTO postrider_inbox_ledger (consumer, received_count, ignored_count) VALUES (?, ?, ?)
