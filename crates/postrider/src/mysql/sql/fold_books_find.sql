-- Entries of writers that have not committed are locked, and skipped.
SELECT id FROM `{outbox}_book_entries` ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED
