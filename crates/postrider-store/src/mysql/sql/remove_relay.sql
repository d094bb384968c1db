DELETE FROM postrider_relays WHERE id = ? AND fenced
