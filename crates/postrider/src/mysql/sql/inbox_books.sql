-- Each consumer's book: what programs booked beside what is in the inbox, in one snapshot.
SELECT consumer, CAST(SUM(received) AS SIGNED), CAST(SUM(ignored) AS SIGNED),
       CAST(SUM(applied) AS SIGNED), CAST(SUM(dead) AS SIGNED),
       CAST(SUM(unresolved) AS SIGNED)
FROM (
    SELECT consumer, received_count AS received, ignored_count AS ignored,
           applied_count AS applied, dead_count AS dead, 0 AS unresolved
    FROM postrider_inbox_books
    UNION ALL
    SELECT consumer, 0, 0, SUM(outcome = 'applied'), SUM(outcome = 'dead'), 0
    FROM postrider_inbox GROUP BY consumer
    UNION ALL
    SELECT consumer, 0, 0, 0, 0, COUNT(*)
    FROM postrider_inbox_dlq WHERE resolved_at IS NULL GROUP BY consumer
) AS booked
GROUP BY consumer ORDER BY consumer
