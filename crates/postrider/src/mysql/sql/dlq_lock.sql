-- Two operators at once: the second waits here, and then sees `resolved`.
SELECT resolved, resolved_by FROM `{outbox}_dlq` WHERE id = ? FOR UPDATE
