-- Locks the lanes of an outbox: one relay at a time takes lanes. A later statement reads which
-- owners live, so that its result is not older than the lock.
SELECT lane, owner, version, crash_count, flight_to, suspect_id
FROM postrider_lanes WHERE outbox = ? ORDER BY lane FOR UPDATE
