-- Lines of minutes older than an age in ms, except their sum; maximum rows.
SELECT CAST(minute AS CHAR), event_type, kind FROM `{outbox}_ledger`
WHERE minute > '1970-01-01' AND minute < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
ORDER BY minute, event_type, kind LIMIT ? FOR UPDATE SKIP LOCKED
