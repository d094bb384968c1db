-- Outbox, relay, lanes as bits.
UPDATE postrider_lanes SET crash_count = 0, flight_to = NULL, suspect_id = NULL
WHERE outbox = ? AND owner = ? AND (? >> lane) & 1 = 1
