SELECT event_type,
    CAST(SUM(CASE kind WHEN 'appended' THEN count ELSE 0 END) AS SIGNED) AS appended,
    CAST(SUM(CASE kind WHEN 'delivered' THEN count ELSE 0 END) AS SIGNED) AS delivered,
    CAST(SUM(CASE kind WHEN 'dead' THEN count ELSE 0 END) AS SIGNED) AS dead
FROM (
    SELECT event_type, kind, count FROM `{outbox}_books`
    UNION ALL SELECT event_type, kind, count FROM `{outbox}_book_entries`
) AS entries GROUP BY event_type ORDER BY event_type
