-- The three sides by minute in one snapshot: one statement.
SELECT minute, kind, sum(count) AS count, sum(id_sum) AS id_sum FROM (
    SELECT minute, kind, count, id_sum FROM "{outbox}_books"
    UNION ALL
    SELECT substr(created_at, 1, 16) || ':00.000Z',
        CASE status WHEN 'DEAD_LETTER' THEN 'dead' ELSE 'pending' END, count(*), sum(id)
    FROM "{outbox}" GROUP BY 1, 2
) GROUP BY 1, 2 ORDER BY 1, 2
