SELECT id FROM postrider_relays WHERE NOT fenced
