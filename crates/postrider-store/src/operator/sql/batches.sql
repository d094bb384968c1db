-- name: batch_record
-- Another try of the same batch waits here until this one is decided.
INSERT INTO postrider_buffer_batches (id, buffer, state, entries)
VALUES (:id, :buffer, :state, :entries)
{unless_known id}

-- name: batch_state
SELECT state FROM postrider_buffer_batches WHERE id = :id

-- name: batch_lock
SELECT state FROM postrider_buffer_batches WHERE id = :id {lock}

-- name: batch_change
UPDATE postrider_buffer_batches SET state = :to WHERE id = :id AND state = :from

-- name: batch_entries
SELECT entries FROM postrider_buffer_batches WHERE id = :id

-- name: batch_ledger
-- Last in its transaction: the row is everybody's.
INSERT INTO postrider_buffer_ledger (buffer, kind, entries) VALUES (:buffer, :kind, :entries)
ON CONFLICT (buffer, kind)
DO UPDATE SET entries = postrider_buffer_ledger.entries + excluded.entries

-- name: batch_ledgers
SELECT kind, entries FROM postrider_buffer_ledger WHERE buffer = :buffer

-- name: clean_batches
-- A dead batch is kept until somebody imports it.
DELETE FROM postrider_buffer_batches WHERE id IN (
    SELECT id FROM postrider_buffer_batches
    WHERE buffer = :buffer AND recorded_at < {ago :age} AND state <> 'dead'
    ORDER BY recorded_at LIMIT :limit {lock_free}
)
