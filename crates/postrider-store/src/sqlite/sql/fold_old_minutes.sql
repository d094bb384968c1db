-- Sums up minutes up to $1 by type and kind; the write lock is held.
INSERT INTO "{outbox}_ledger" (minute, event_type, kind, count, id_sum)
SELECT '1970-01-01T00:00:00.000Z', event_type, kind, sum(count), sum(id_sum) FROM "{outbox}_ledger"
WHERE minute > '1970-01-01T00:00:00.000Z' AND minute <= $1 GROUP BY 2, 3
ON CONFLICT (minute, event_type, kind)
DO UPDATE SET count = count + excluded.count, id_sum = id_sum + excluded.id_sum
