-- Ids with identities. Where these events are: in the outbox, or dead letters. The rest is delivered.
-- After ids were given out again, another event may have the id; an identity is NULL where an older
-- program did not note it.
SELECT
    (SELECT count(*) FROM json_each($1) AS d
        CROSS JOIN "{outbox}" AS o
        ON o.id = d.value ->> 0 AND o.event_id = coalesce(d.value ->> 1, o.event_id)),
    (SELECT count(*) FROM json_each($1) AS d
        CROSS JOIN "{outbox}_dlq" AS o
        ON o.original_id = d.value ->> 0 AND o.event_id = coalesce(d.value ->> 1, o.event_id))
