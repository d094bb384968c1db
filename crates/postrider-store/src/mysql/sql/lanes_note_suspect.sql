-- Lane, id, outbox, relay, lane. One suspect at a time, over all lanes.
UPDATE postrider_lanes SET suspect_id = CASE WHEN lane = ? THEN ? END
WHERE outbox = ? AND owner = ? AND (lane = ? OR suspect_id IS NOT NULL)
