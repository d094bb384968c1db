-- $1 outbox, $2 relay, $3 lanes as bits, $4 id.
UPDATE postrider_lanes SET flight_to = greatest(flight_to, $4)
WHERE outbox = $1 AND owner = $2 AND ($3::bigint >> lane) & 1 = 1
