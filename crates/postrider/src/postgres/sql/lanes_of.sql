-- The lanes of an outbox, locked: one relay takes at a time. Whether their owners live is asked
-- after this: a join would answer from the moment before the wait for the lock.
SELECT lane, owner, version, crash_count, flight_to, suspect_id
FROM postrider_lanes WHERE outbox = $1 ORDER BY lane FOR UPDATE
