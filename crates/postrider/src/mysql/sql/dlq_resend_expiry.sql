-- The event that an edited dead letter became, and the dead letter. It expires when that would have,
-- unless the time has passed.
UPDATE `{outbox}` AS o STRAIGHT_JOIN `{outbox}_dlq` AS d SET o.expires_at = d.expires_at
WHERE o.id = ? AND d.id = ? AND d.expires_at > UTC_TIMESTAMP(6)
