-- name: pauses
SELECT kind, name, operator, note, paused_at FROM postrider_pauses ORDER BY kind, name

-- name: pause
INSERT INTO postrider_pauses (kind, name, operator, note) VALUES (:kind, :name, :operator, :note)
{unless_known kind, name}

-- name: resume
DELETE FROM postrider_pauses WHERE kind = :kind AND name = :name
