-- The lanes of an outbox, locked: one relay takes at a time. Whether their owners live is asked
-- after this, so that the answer is not older than the lock.
SELECT lane, owner, version, crash_count, flight_to, suspect_id
FROM postrider_lanes WHERE outbox = ? ORDER BY lane FOR UPDATE
