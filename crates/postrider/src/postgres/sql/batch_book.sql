-- $1 buffer, $2 kind, $3 entries. Last in its transaction: the row is everybody's.
INSERT INTO postrider_buffer_books (buffer, kind, entries) VALUES ($1, $2, $3)
ON CONFLICT (buffer, kind)
DO UPDATE SET entries = postrider_buffer_books.entries + excluded.entries
