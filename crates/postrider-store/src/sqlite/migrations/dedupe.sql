-- name: open
-- dedupe = "open": a request id is deleted when its event leaves the outbox for any reason.
DROP TRIGGER IF EXISTS "{outbox}_forget";
CREATE TRIGGER "{outbox}_forget" AFTER DELETE ON "{outbox}" WHEN OLD.request_id IS NOT NULL
BEGIN
    DELETE FROM "{outbox}_keys" WHERE request_id = OLD.request_id AND id = OLD.id;
END;

-- name: window
-- dedupe = a duration: maintenance deletes request ids by age.
DROP TRIGGER IF EXISTS "{outbox}_forget";
