-- Adds the rows that the same transaction removes to the ledger: $1 their ids, $2 the kind. SQLite
-- has one writer at a time, so the sums are updated at once and there is nothing to fold.
INSERT INTO "{outbox}_ledger" (minute, event_type, kind, count, id_sum)
SELECT substr(created_at, 1, 16) || ':00.000Z', event_type, $2, count(*), sum(id)
FROM "{outbox}" WHERE id IN (SELECT value FROM json_each($1)) GROUP BY 1, 2
ON CONFLICT (minute, event_type, kind)
DO UPDATE SET count = count + excluded.count, id_sum = id_sum + excluded.id_sum
