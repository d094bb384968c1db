-- $1 row ids, $2 identities. Where these events are: still in the outbox, or dead letters. The rest
-- is delivered. After ids were given out again, another event may have the id; an identity is NULL
-- where an older program did not note it.
SELECT
    (SELECT count(*) FROM unnest($1::bigint[], $2::text[]::uuid[]) AS d (id, event_id)
        JOIN "{outbox}" AS o ON o.id = d.id AND o.event_id = coalesce(d.event_id, o.event_id)),
    (SELECT count(*) FROM unnest($1::bigint[], $2::text[]::uuid[]) AS d (id, event_id)
        JOIN "{outbox}_dlq" AS o
            ON o.original_id = d.id AND o.event_id = coalesce(d.event_id, o.event_id))
