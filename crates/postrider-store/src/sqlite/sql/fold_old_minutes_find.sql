-- The last minute of the next $2 lines that are older than $1, and the number of these lines.
SELECT max(minute), count(*) FROM (
    SELECT minute FROM "{outbox}_ledger"
    WHERE minute > '1970-01-01T00:00:00.000Z'
      AND minute < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $1)
    ORDER BY minute LIMIT $2
)
