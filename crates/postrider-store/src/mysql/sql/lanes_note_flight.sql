-- Id, outbox, relay, lanes as bits.
UPDATE postrider_lanes SET flight_to = GREATEST(COALESCE(flight_to, 0), ?)
WHERE outbox = ? AND owner = ? AND (? >> lane) & 1 = 1
