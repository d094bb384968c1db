-- $1 outbox, $2 relay, $3 lanes, $4 versions. If the relay takes a lane again after it sent the
-- release, the release finds another version, however late it arrives.
UPDATE postrider_lanes AS l SET owner = NULL, version = l.version + 1
FROM unnest($3::smallint[], $4::bigint[]) AS t (lane, version)
WHERE l.outbox = $1 AND l.lane = t.lane AND l.owner = $2 AND l.version = t.version
