SELECT event_type,
    coalesce(sum(count) FILTER (WHERE kind = 'appended'), 0)::bigint AS appended,
    coalesce(sum(count) FILTER (WHERE kind = 'delivered'), 0)::bigint AS delivered,
    coalesce(sum(count) FILTER (WHERE kind = 'dead'), 0)::bigint AS dead
FROM (
    SELECT event_type, kind, count FROM "{outbox}_books"
    UNION ALL SELECT event_type, kind, count FROM "{outbox}_book_entries"
) AS entries GROUP BY 1 ORDER BY 1
