-- The three sides by minute in one snapshot: one statement. Minutes older than so many ms are one
-- window, whether they are summed up yet or not.
SELECT IF(minute < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND,
        CAST('1970-01-01' AS DATETIME), minute) AS shown,
    kind, CAST(SUM(count) AS SIGNED) AS count, CAST(SUM(id_sum) AS CHAR) AS id_sum
FROM (
    SELECT minute, kind, count, id_sum FROM `{outbox}_books`
    UNION ALL SELECT minute, kind, count, id_sum FROM `{outbox}_book_entries`
    UNION ALL
    SELECT CAST(DATE_FORMAT(created_at, '%Y-%m-%d %H:%i:00') AS DATETIME),
        CASE status WHEN 'DEAD_LETTER' THEN 'dead' ELSE 'pending' END, COUNT(*), SUM(id)
    FROM `{outbox}` GROUP BY 1, 2
) AS booked
GROUP BY 1, 2 ORDER BY 1, 2
