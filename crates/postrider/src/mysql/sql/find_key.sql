-- The first event of a request id that was refused as a repeat. A locking read, because the
-- snapshot of REPEATABLE READ may be older than that event. The key exists, so no gap is locked.
SELECT id FROM `{outbox}_keys` WHERE request_id = ? LOCK IN SHARE MODE
