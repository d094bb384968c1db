-- The adopted table is not changed. The index is created first and dropped last, so it shows
-- whether anything of an adoption exists, even if it is incomplete.
DROP TRIGGER IF EXISTS `{outbox}_adopt_append`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_state`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_dead`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_resolved`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_gone`;
DROP INDEX IF EXISTS `{outbox}_adopted` ON `{outbox}`;
