-- Ids with identities, as JSON, twice. Where these events are: in the outbox, or dead letters.
-- The rest is delivered. After ids were given out again, another event may have the id; an identity
-- is NULL where an older program did not note it.
SELECT
    (SELECT COUNT(*) FROM JSON_TABLE(?, '$[*]' COLUMNS (
            id BIGINT PATH '$[0]', event_id CHAR(36) PATH '$[1]'
        )) AS d
        STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
            AND (d.event_id IS NULL
                OR o.event_id = CONVERT(d.event_id USING ascii) COLLATE ascii_bin)),
    (SELECT COUNT(*) FROM JSON_TABLE(?, '$[*]' COLUMNS (
            id BIGINT PATH '$[0]', event_id CHAR(36) PATH '$[1]'
        )) AS d
        STRAIGHT_JOIN `{outbox}_dlq` AS o ON o.original_id = d.id
            AND (d.event_id IS NULL
                OR o.event_id = CONVERT(d.event_id USING ascii) COLLATE ascii_bin))
