-- Claim mode twice, outbox. The epoch increases only with a change; it is computed from the old
-- mode, because assignments run in the order in which they are written.
UPDATE postrider_outboxes SET mode_epoch = mode_epoch + (claim <> ?), claim = ? WHERE name = ?
