-- Row ids with event ids, as JSON, twice. Counts these events in the outbox and in the dead
-- letters; the rest is delivered. After ids were assigned again, another event may have the row id;
-- an event id is NULL if an older program did not store it.
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
