-- Batch, buffer, state, entries. Another try of the same batch waits here until this one is decided.
-- Error 1062: it is recorded already.
INSERT INTO postrider_buffer_batches (id, buffer, state, entries) VALUES (?, ?, ?, ?)
