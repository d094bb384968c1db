-- Lanes and versions, as JSON; outbox; relay. If the relay takes a lane again after it sent the
-- release, the release finds another version, however late it arrives.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane INT PATH '$[0]', version BIGINT PATH '$[1]')) AS t
STRAIGHT_JOIN postrider_lanes AS l FORCE INDEX (PRIMARY) ON l.lane = t.lane
SET l.owner = NULL, l.version = l.version + 1
WHERE l.outbox = ? AND l.owner = ? AND l.version = t.version
