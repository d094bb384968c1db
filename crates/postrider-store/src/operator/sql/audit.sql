-- name: audit
INSERT INTO postrider_audit (operator, action, outbox, target, detail)
VALUES (:operator, :action, :outbox, :target, :detail)

-- name: audit_all
-- `:lines` is a JSON array of targets and details.

-- name: audit_below
-- The end of the next step of a search: so many rows below an id.
SELECT min(id) AS from_id, {now} AS as_of FROM (
    SELECT id FROM postrider_audit {primary} WHERE id < :before ORDER BY id DESC LIMIT :rows
) AS step

-- name: audit_list
-- Newest first.
SELECT id, at, operator, action, outbox, target, detail FROM postrider_audit {primary}
WHERE (:operator IS NULL OR operator = :operator) AND (:action IS NULL OR action = :action)
  AND (:outbox IS NULL OR outbox = :outbox) AND (:target IS NULL OR target = :target)
  AND (:since IS NULL OR at >= :since) AND (:until IS NULL OR at < :until)
  AND id >= :from AND id < :below
ORDER BY id DESC LIMIT :limit
