DELETE FROM postrider_pauses WHERE kind = ? AND name = ?
