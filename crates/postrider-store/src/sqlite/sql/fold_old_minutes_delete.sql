DELETE FROM "{outbox}_ledger"
WHERE minute > '1970-01-01T00:00:00.000Z' AND minute <= $1
