SELECT (SELECT COUNT(*) FROM `{outbox}_dlq` WHERE resolved = 0) AS unresolved,
    (SELECT TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP(6)) FROM `{outbox}` ORDER BY id LIMIT 1)
        AS oldest_age_s
