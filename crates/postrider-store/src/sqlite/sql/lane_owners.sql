-- The owner of each lane.
SELECT lane, owner, crash_count FROM postrider_lanes WHERE outbox = $1 ORDER BY lane
