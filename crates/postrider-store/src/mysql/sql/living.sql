SELECT id FROM postrider_relays WHERE fenced = 0
