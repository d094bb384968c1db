-- State that it gets, batch, state that it has.
UPDATE postrider_buffer_batches SET state = ? WHERE id = ? AND state = ?
