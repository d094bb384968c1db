-- name: open
-- dedupe = "open": a request id is deleted when its event leaves the outbox for any reason.
CREATE TRIGGER /*M! IF NOT EXISTS */ `{outbox}_forget` AFTER DELETE ON `{outbox}` FOR EACH ROW
    DELETE FROM `{outbox}_keys` WHERE request_id = OLD.request_id AND id = OLD.id;

-- name: window
-- dedupe = a duration: maintenance deletes request ids by age.
DROP TRIGGER IF EXISTS `{outbox}_forget`;
