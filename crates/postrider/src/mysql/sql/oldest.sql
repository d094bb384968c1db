-- See store/oldest.rs.
SELECT id, TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP(6)) AS age_s
FROM `{outbox}` WHERE id >= ? ORDER BY id LIMIT 1
