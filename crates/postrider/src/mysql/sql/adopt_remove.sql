-- The adopted table stays as it is. The index is made first and goes last: it tells whether there is
-- anything of an adoption, be it half-made.
DROP TRIGGER IF EXISTS `{outbox}_adopt_append`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_state`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_dead`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_resolved`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_gone`;
DROP INDEX IF EXISTS `{outbox}_adopted` ON `{outbox}`;
