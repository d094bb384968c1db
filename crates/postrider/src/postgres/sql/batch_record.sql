-- $1 batch, $2 buffer, $3 state, $4 entries. Another try of the same batch waits here until this one
-- is decided. No row: it is recorded already.
INSERT INTO postrider_buffer_batches (id, buffer, state, entries) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO NOTHING
