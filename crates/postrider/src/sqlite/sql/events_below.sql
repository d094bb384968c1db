-- The end of the next step of a search: $2 rows below $1.
SELECT min(id), strftime('%Y-%m-%dT%H:%M:%fZ', 'now') FROM (
    SELECT id FROM "{outbox}" WHERE id < $1 ORDER BY id DESC LIMIT $2
) AS step
