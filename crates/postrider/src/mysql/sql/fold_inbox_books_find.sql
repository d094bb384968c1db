-- Entries of consumers that have not committed are locked, and are skipped.
SELECT id FROM postrider_inbox_books WHERE id <= ? ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED
