-- $1 the event that an edited dead letter became, $2 the dead letter. It expires when that would have,
-- unless the time has passed.
UPDATE "{outbox}" AS o SET expires_at = d.expires_at
FROM "{outbox}_dlq" AS d WHERE o.id = $1 AND d.id = $2 AND d.expires_at > now()
