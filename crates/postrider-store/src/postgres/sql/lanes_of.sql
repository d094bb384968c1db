-- Locks the lanes of an outbox: one relay at a time takes lanes. A later statement reads which
-- owners live: a join would see the state before the wait for the lock.
SELECT lane, owner, version, crash_count, flight_to, suspect_id
FROM postrider_lanes WHERE outbox = $1 ORDER BY lane FOR UPDATE
