-- Unresolved ones, from their index alone and no further than asked: a count that is never cut short.
SELECT COUNT(*) FROM (SELECT 1 FROM `{outbox}_dlq` WHERE resolved = 0 LIMIT ?) AS unresolved
