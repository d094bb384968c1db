-- $1 outbox, $2 relay, $3 a JSON array of lanes and versions. If the relay takes a lane again after
-- it sent the release, the release finds another version, however late it arrives.
UPDATE postrider_lanes AS l SET owner = NULL, version = l.version + 1
FROM json_each($3) AS t
WHERE l.outbox = $1 AND l.lane = t.value ->> 0 AND l.owner = $2 AND l.version = t.value ->> 1
