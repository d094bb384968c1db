SELECT entries FROM postrider_buffer_batches WHERE id = ?
