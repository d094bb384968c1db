-- What operator work says differently on MariaDB; see operator/sql/.

-- name: audit_all
INSERT INTO postrider_audit (operator, action, outbox, target, detail)
SELECT :operator, :action, :outbox, d.target, d.detail
FROM JSON_TABLE(:lines, '$[*]' COLUMNS (
    target VARCHAR(100) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[0]',
    detail TEXT CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]'
)) AS d

-- name: dlq_samples
SELECT o.id, o.reason, o.error_message
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN "{outbox}_dlq" AS o {primary} ON o.id = d.id

-- name: dlq_lock_all
SELECT o.id, o.event_id
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN "{outbox}_dlq" AS o {primary} ON o.id = d.id
WHERE NOT o.resolved ORDER BY o.id FOR UPDATE /*!80000 OF o */

-- name: dlq_retry_all
-- The trigger tells the new ids.
INSERT INTO "{outbox}" (
    {message}, max_retries, redrive_count, expires_at
)
SELECT {o.message},
    CASE WHEN o.max_retries BETWEEN 1 AND 1000 THEN o.max_retries END,
    LEAST(GREATEST(o.redrive_count, 0), 999999) + 1,
    CASE WHEN o.expires_at > UTC_TIMESTAMP(6) THEN o.expires_at END
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN "{outbox}_dlq" AS o {primary} ON o.id = d.id
ORDER BY o.id

-- name: dlq_resolve_all
UPDATE JSON_TABLE(:letters, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', retried_as BIGINT PATH '$[1]'
)) AS d
STRAIGHT_JOIN "{outbox}_dlq" AS o {primary} ON o.id = d.id
SET o.resolved = 1, o.resolved_at = UTC_TIMESTAMP(6), o.resolved_by = :operator,
    o.resolution_note = :note, o.retried_as = d.retried_as, o.updated_at = UTC_TIMESTAMP(6)

-- name: dlq_fingerprint
UPDATE JSON_TABLE(:kinds, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    fingerprint VARCHAR(16) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]'
)) AS d
STRAIGHT_JOIN "{outbox}_dlq" AS o {primary} ON o.id = d.id
SET o.fingerprint = d.fingerprint

-- name: replay
-- The trigger tells the new ids. The mark is put in front of the other headers as they are: what
-- JSON_SET returns has rounded numbers on MySQL.
INSERT INTO "{child}" (
    {message but headers}, headers, redrive_count
)
SELECT {o.message but headers},
    CASE WHEN COALESCE(JSON_LENGTH(o.headers), 0) = 0
        OR JSON_CONTAINS_PATH(o.headers, 'one', '$."postrider-replay"')
    THEN JSON_SET(COALESCE(o.headers, '{}'), '$."postrider-replay"', :mark)
    ELSE CONCAT('{"postrider-replay": ', JSON_QUOTE(:mark), ', ',
        SUBSTRING(o.headers, LOCATE('{', o.headers) + 1)) END,
    LEAST(GREATEST(o.redrive_count, 0), 999999) + 1
FROM JSON_TABLE(:entries, '$[*]' COLUMNS (
    position FOR ORDINALITY, id BIGINT PATH '$[0]', event_id CHAR(36) PATH '$[1]'
)) AS d
STRAIGHT_JOIN "{outbox}_archive" AS o {primary}
    ON o.id = d.id AND o.event_id = CONVERT(d.event_id USING ascii) COLLATE ascii_bin
WHERE o.delivered_at = (
    SELECT MAX(a.delivered_at) FROM "{outbox}_archive" AS a {primary}
    WHERE a.id = o.id AND a.event_id = o.event_id
)
ORDER BY d.position

-- name: canary
SELECT
    (SELECT COUNT(*) FROM JSON_TABLE(:events, '$[*]' COLUMNS (
            id BIGINT PATH '$[0]', event_id CHAR(36) PATH '$[1]'
        )) AS d
        STRAIGHT_JOIN "{outbox}" AS o {primary} ON o.id = d.id
            AND (d.event_id IS NULL
                OR o.event_id = CONVERT(d.event_id USING ascii) COLLATE ascii_bin)
    ) AS waiting,
    (SELECT COUNT(*) FROM JSON_TABLE(:events, '$[*]' COLUMNS (
            id BIGINT PATH '$[0]', event_id CHAR(36) PATH '$[1]'
        )) AS d
        STRAIGHT_JOIN "{outbox}_dlq" AS o ON o.original_id = d.id
            AND (d.event_id IS NULL
                OR o.event_id = CONVERT(d.event_id USING ascii) COLLATE ascii_bin)
    ) AS dead

-- name: ledger
SELECT IF(minute < {ago :by_minute}, CAST('1970-01-01' AS DATETIME), minute) AS shown,
    kind, CAST(SUM(count) AS SIGNED) AS found, CAST(SUM(id_sum) AS CHAR) AS id_sum
FROM (
    SELECT minute, kind, count, id_sum FROM "{outbox}_ledger"
    UNION ALL SELECT minute, kind, count, id_sum FROM "{outbox}_ledger_entries"
    UNION ALL
    SELECT CAST(DATE_FORMAT(created_at, '%Y-%m-%d %H:%i:00') AS DATETIME),
        CASE status WHEN 'DEAD_LETTER' THEN 'dead' ELSE 'pending' END, COUNT(*), SUM(id)
    FROM "{outbox}" GROUP BY 1, 2
) AS recorded
GROUP BY 1, 2 ORDER BY 1, 2

-- name: clean_inbox
DELETE i FROM JSON_TABLE(:rows, '$[*]' COLUMNS (
    consumer VARCHAR(100) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[0]',
    event_id VARCHAR(100) CHARACTER SET utf8mb4
        COLLATE /*M! utf8mb4_nopad_bin *//*!80000 utf8mb4_0900_bin */ PATH '$[1]'
)) AS d STRAIGHT_JOIN postrider_inbox AS i {primary}
    ON i.consumer = d.consumer AND i.event_id = d.event_id

-- name: clean_inbox_letters
DELETE FROM postrider_inbox_dlq
WHERE resolved_at < {ago :age} AND (:consumer IS NULL OR consumer = :consumer)
ORDER BY id LIMIT :limit

-- name: fold_inbox_ledger
INSERT INTO postrider_inbox_ledger
    (consumer, received_count, ignored_count, applied_count, dead_count)
SELECT * FROM (
    SELECT b.consumer, SUM(b.received_count), SUM(b.ignored_count), SUM(b.applied_count),
           SUM(b.dead_count)
    FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS d
    STRAIGHT_JOIN postrider_inbox_ledger AS b {primary} ON b.id = d.id
    GROUP BY b.consumer
) AS sums

-- name: fold_inbox_ledger_delete
DELETE b FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS d
STRAIGHT_JOIN postrider_inbox_ledger AS b {primary} ON b.id = d.id

-- name: batch_ledger
INSERT INTO postrider_buffer_ledger (buffer, kind, entries) VALUES (:buffer, :kind, :entries)
ON DUPLICATE KEY UPDATE entries = entries + VALUES(entries)

-- name: clean_batches
DELETE FROM postrider_buffer_batches
WHERE buffer = :buffer AND recorded_at < {ago :age} AND state <> 'dead'
ORDER BY recorded_at LIMIT :limit
