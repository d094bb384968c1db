-- $1 outbox, $2 relay, $3 lanes as bits.
UPDATE postrider_lanes SET crash_count = 0, flight_to = NULL, suspect_id = NULL
WHERE outbox = $1 AND owner = $2 AND ($3::bigint >> lane) & 1 = 1
