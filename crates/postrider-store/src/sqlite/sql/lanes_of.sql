-- The lanes of an outbox with the state of their owners.
SELECT l.lane, l.owner, l.version, l.crash_count, l.flight_to, l.suspect_id,
    r.id IS NOT NULL AND NOT r.fenced AS owner_lives
FROM postrider_lanes AS l LEFT JOIN postrider_relays AS r ON r.id = l.owner
WHERE l.outbox = $1 ORDER BY l.lane
