SELECT (SELECT count(*) FROM "{outbox}_dlq" WHERE NOT resolved) AS unresolved,
    (SELECT unixepoch('now') - unixepoch(created_at) FROM "{outbox}" ORDER BY id LIMIT 1)
        AS oldest_age_s
