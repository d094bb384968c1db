-- $1 outbox, $2 relay, $3 lane, $4 id. One suspect at a time, over all lanes.
UPDATE postrider_lanes SET suspect_id = CASE WHEN lane = $3 THEN $4::bigint END
WHERE outbox = $1 AND owner = $2 AND (lane = $3 OR suspect_id IS NOT NULL)
