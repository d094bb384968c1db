-- The three sides by minute in one snapshot: one statement. Minutes older than $1 ms are one window,
-- whether they are summed up yet or not.
WITH booked AS (
    SELECT minute, kind, sum(count) AS count, sum(id_sum) AS id_sum FROM (
        SELECT minute, kind, count, id_sum FROM "{outbox}_books"
        UNION ALL SELECT minute, kind, count, id_sum FROM "{outbox}_book_entries"
    ) AS entries GROUP BY 1, 2
    UNION ALL
    SELECT date_trunc('minute', created_at),
        CASE status WHEN 'DEAD_LETTER' THEN 'dead' ELSE 'pending' END, count(*), sum(id)
    FROM "{outbox}" GROUP BY 1, 2
)
SELECT CASE WHEN minute < now() - $1 * interval '1 millisecond' THEN to_timestamp(0)
        ELSE minute END AS minute,
    kind, sum(count)::bigint AS count, sum(id_sum)::text AS id_sum
FROM booked GROUP BY 1, 2 ORDER BY 1, 2
