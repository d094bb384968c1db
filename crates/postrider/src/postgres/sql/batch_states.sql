SELECT id, state FROM postrider_buffer_batches WHERE id = ANY ($1)
