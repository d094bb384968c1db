-- Unresolved ones, from their index alone and no further than asked: a count that is never cut short.
SELECT count(*) FROM (SELECT 1 FROM "{outbox}_dlq" WHERE NOT resolved LIMIT $1) AS unresolved
