DELETE FROM postrider_relays WHERE id = $1 AND fenced
