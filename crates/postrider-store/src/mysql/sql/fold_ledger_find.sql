-- Entries of transactions that have not committed are locked, and are skipped.
SELECT id FROM `{outbox}_ledger_entries` ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED
