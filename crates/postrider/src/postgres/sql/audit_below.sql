-- The end of the next step of a search: $2 rows below $1.
SELECT min(id), now() FROM (
    SELECT id FROM postrider_audit WHERE id < $1 ORDER BY id DESC LIMIT $2
) AS step
