SELECT state FROM postrider_buffer_batches WHERE id = ?
