-- Lanes, each with whether its owner died (0 or 1), as JSON; relay; outbox.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', died INT PATH '$[1]')) AS t
STRAIGHT_JOIN postrider_lanes AS l FORCE INDEX (PRIMARY) ON l.lane = t.lane
SET l.owner = ?, l.version = l.version + 1, l.crash_count = l.crash_count + t.died,
    l.suspect_id = CASE WHEN t.died = 0 THEN l.suspect_id END
WHERE l.outbox = ?
