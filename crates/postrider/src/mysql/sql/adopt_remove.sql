-- The adopted table stays as it is. The last one tells whether there is an adoption.
DROP TRIGGER IF EXISTS `{outbox}_adopt_append`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_state`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_dead`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_resolved`;
DROP TRIGGER IF EXISTS `{outbox}_adopt_gone`;
