-- dedupe = a time: upkeep forgets request ids by age.
DROP TRIGGER IF EXISTS `{outbox}_forget`;
