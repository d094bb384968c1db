-- $1 outbox, $2 relay, $3 lanes, $4 whether the owner of each died.
UPDATE postrider_lanes AS l
SET owner = $2, version = l.version + 1, crash_count = l.crash_count + t.died::integer,
    suspect_id = CASE WHEN NOT t.died THEN l.suspect_id END
FROM unnest($3::smallint[], $4::boolean[]) AS t (lane, died)
WHERE l.outbox = $1 AND l.lane = t.lane
