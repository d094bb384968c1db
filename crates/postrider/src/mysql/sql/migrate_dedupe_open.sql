-- dedupe = "open": a request id is forgotten when its event leaves the outbox, whoever removes it.
CREATE TRIGGER IF NOT EXISTS `{outbox}_forget` AFTER DELETE ON `{outbox}` FOR EACH ROW
    DELETE FROM `{outbox}_keys` WHERE request_id = OLD.request_id AND id = OLD.id;
