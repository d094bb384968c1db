-- Buffer, kind, entries. Last in its transaction: the row is everybody's.
INSERT INTO postrider_buffer_books (buffer, kind, entries) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE entries = entries + VALUES(entries)
