-- An import asks by identity which events are in the outbox already. Run only where it is missing.
CREATE INDEX IF NOT EXISTS `{outbox}_adopted` ON `{outbox}` (event_id);
