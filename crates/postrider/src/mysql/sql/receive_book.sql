INSERT INTO postrider_inbox_books (consumer, received_count, ignored_count) VALUES (?, ?, ?)
