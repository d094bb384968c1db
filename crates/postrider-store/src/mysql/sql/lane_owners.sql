-- The owner of each lane.
SELECT lane, owner, crash_count FROM postrider_lanes WHERE outbox = ? ORDER BY lane
