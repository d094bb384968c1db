-- Row ids with event ids. Counts these events in the outbox and in the dead letters; the rest is
-- delivered. After ids were assigned again, another event may have the row id; an event id is NULL
-- if an older program did not store it.
SELECT
    (SELECT count(*) FROM json_each($1) AS d
        CROSS JOIN "{outbox}" AS o
        ON o.id = d.value ->> 0 AND o.event_id = coalesce(d.value ->> 1, o.event_id)),
    (SELECT count(*) FROM json_each($1) AS d
        CROSS JOIN "{outbox}_dlq" AS o
        ON o.original_id = d.value ->> 0 AND o.event_id = coalesce(d.value ->> 1, o.event_id))
