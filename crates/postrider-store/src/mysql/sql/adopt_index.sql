-- An import looks up by event id which events are in the outbox already. Runs only if the index is
-- missing.
CREATE INDEX IF NOT EXISTS `{outbox}_adopted` ON `{outbox}` (event_id);
