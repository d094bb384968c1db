-- The three sides by minute in one snapshot: one statement. Minutes older than $1 are one window,
-- whether they are summed up yet or not.
SELECT CASE WHEN minute < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
        THEN '1970-01-01T00:00:00.000Z' ELSE minute END AS minute,
    kind, sum(count) AS count, sum(id_sum) AS id_sum FROM (
    SELECT minute, kind, count, id_sum FROM "{outbox}_books"
    UNION ALL
    SELECT substr(created_at, 1, 16) || ':00.000Z',
        CASE status WHEN 'DEAD_LETTER' THEN 'dead' ELSE 'pending' END, count(*), sum(id)
    FROM "{outbox}" GROUP BY 1, 2
) GROUP BY 1, 2 ORDER BY 1, 2
