-- name: ledger
-- The three sides by minute in one snapshot: one statement. Minutes older than `:by_minute` are one
-- window, whether they are summed up yet or not.

-- name: statistics
SELECT event_type,
    CAST(sum(CASE kind WHEN 'appended' THEN count ELSE 0 END) AS {integer}) AS appended,
    CAST(sum(CASE kind WHEN 'delivered' THEN count ELSE 0 END) AS {integer}) AS delivered,
    CAST(sum(CASE kind WHEN 'dead' THEN count ELSE 0 END) AS {integer}) AS dead
FROM (
    SELECT event_type, kind, count FROM "{outbox}_ledger"
    UNION ALL SELECT event_type, kind, count FROM "{outbox}_ledger_entries"
) AS entries GROUP BY 1 ORDER BY 1

-- name: unresolved
SELECT count(*) AS found FROM "{outbox}_dlq" WHERE {unresolved}

-- name: oldest
-- See store/oldest.rs.
SELECT id, {seconds_since created_at} AS age_s
FROM "{outbox}" WHERE id >= :from ORDER BY id LIMIT 1
