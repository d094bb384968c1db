-- $1 row ids, $2 event ids. Counts these events in the outbox and in the dead letters; the rest is
-- delivered. After ids were assigned again, another event may have the row id; an event id is NULL
-- if an older program did not store it.
SELECT
    (SELECT count(*) FROM unnest($1::bigint[], $2::text[]::uuid[]) AS d (id, event_id)
        JOIN "{outbox}" AS o ON o.id = d.id AND o.event_id = coalesce(d.event_id, o.event_id)),
    (SELECT count(*) FROM unnest($1::bigint[], $2::text[]::uuid[]) AS d (id, event_id)
        JOIN "{outbox}_dlq" AS o
            ON o.original_id = d.id AND o.event_id = coalesce(d.event_id, o.event_id))
