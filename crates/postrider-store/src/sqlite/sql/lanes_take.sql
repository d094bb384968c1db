-- $1 outbox, $2 relay, $3 a JSON array of lanes, each with whether its owner died.
UPDATE postrider_lanes AS l
SET owner = $2, version = l.version + 1, crash_count = l.crash_count + (t.value ->> 1),
    suspect_id = CASE WHEN NOT (t.value ->> 1) THEN l.suspect_id END
FROM json_each($3) AS t
WHERE l.outbox = $1 AND l.lane = t.value ->> 0
