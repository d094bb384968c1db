DELETE FROM postrider_pauses WHERE kind = $1 AND name = $2
