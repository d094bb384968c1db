UPDATE postrider_relays SET epoch = epoch + 1, fenced = 1 WHERE id = ?
