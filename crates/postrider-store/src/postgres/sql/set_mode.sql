-- $1 outbox, $2 claim mode. The epoch increases only with a change.
UPDATE postrider_outboxes
SET mode_epoch = mode_epoch + (claim <> $2)::integer, claim = $2
WHERE name = $1
RETURNING claim, mode_epoch
