SELECT event_type,
    coalesce(sum(count) FILTER (WHERE kind = 'appended'), 0) AS appended,
    coalesce(sum(count) FILTER (WHERE kind = 'delivered'), 0) AS delivered,
    coalesce(sum(count) FILTER (WHERE kind = 'dead'), 0) AS dead
FROM "{outbox}_books" GROUP BY 1 ORDER BY 1
