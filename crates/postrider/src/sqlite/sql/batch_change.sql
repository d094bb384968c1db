-- $1 batch, $2 the state that it gets, $3 the state that it has. Answers its entries.
UPDATE postrider_buffer_batches SET state = $2 WHERE id = $1 AND state = $3 RETURNING entries
