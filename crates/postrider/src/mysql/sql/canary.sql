-- Ids, as JSON, twice. Where these events are: still in the outbox, or dead letters. The rest is
-- delivered.
SELECT
    (SELECT COUNT(*) FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
        STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id),
    (SELECT COUNT(*) FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
        STRAIGHT_JOIN `{outbox}_dlq` AS o ON o.original_id = d.id)
