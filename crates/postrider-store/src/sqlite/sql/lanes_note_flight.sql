-- $1 outbox, $2 relay, $3 lanes as bits, $4 id.
UPDATE postrider_lanes SET flight_to = max(coalesce(flight_to, 0), $4)
WHERE outbox = $1 AND owner = $2 AND ($3 >> lane) & 1 = 1
