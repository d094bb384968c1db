-- Takes the rows that claim_find.sql found in the same transaction: $1 relay, $2 their ids.
UPDATE "{outbox}"
SET status = 'PROCESSING', locked_by = $1, locked_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
    version = (version + 1) & 9007199254740991
WHERE id IN (SELECT value FROM json_each($2))
