-- See store/oldest.rs.
SELECT id, extract(epoch FROM now() - created_at)::bigint AS age_s
FROM "{outbox}" WHERE id >= $1 ORDER BY id LIMIT 1
