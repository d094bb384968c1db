SELECT kind, entries FROM postrider_buffer_books WHERE buffer = ?
