-- name: inbox_ledger
-- Each consumer's ledger: what programs recorded beside what is in the inbox, in one snapshot.
SELECT consumer, CAST(sum(received) AS {integer}) AS received,
    CAST(sum(ignored) AS {integer}) AS ignored, CAST(sum(applied) AS {integer}) AS applied,
    CAST(sum(dead) AS {integer}) AS dead, CAST(sum(unresolved) AS {integer}) AS unresolved
FROM (
    SELECT consumer, received_count AS received, ignored_count AS ignored,
        applied_count AS applied, dead_count AS dead, 0 AS unresolved
    FROM postrider_inbox_ledger
    UNION ALL
    SELECT consumer, 0, 0, sum(CASE outcome WHEN 'applied' THEN 1 ELSE 0 END),
        sum(CASE outcome WHEN 'dead' THEN 1 ELSE 0 END), 0
    FROM postrider_inbox GROUP BY consumer
    UNION ALL
    SELECT consumer, 0, 0, 0, 0, count(*)
    FROM postrider_inbox_dlq WHERE resolved_at IS NULL GROUP BY consumer
) AS recorded
GROUP BY consumer ORDER BY consumer

-- name: inbox_letters
-- Unresolved ones, newest first, of one consumer or of all.
SELECT id, consumer, event_id, source, message_key, headers, payload, error_message, failed_at,
    retry_asked_at
FROM postrider_inbox_dlq
WHERE resolved_at IS NULL AND (:consumer IS NULL OR consumer = :consumer) AND id < :below
ORDER BY id DESC LIMIT :limit

-- name: inbox_letter_lock
SELECT resolved_at IS NOT NULL AS resolved, resolved_by, consumer FROM postrider_inbox_dlq
WHERE id = :id {lock}

-- name: inbox_letter_resolve
UPDATE postrider_inbox_dlq
SET resolved_at = {now}, resolved_by = :operator, resolution_note = :note, retry_asked_at = NULL
WHERE id = :id

-- name: inbox_letter_ask
-- The consumer that reads its letters handles it again.
UPDATE postrider_inbox_dlq
SET retry_asked_at = coalesce(retry_asked_at, {now}), resolved_by = :operator
WHERE id = :id

-- name: clean_inbox_find
-- A message whose dead letter waits for somebody stays known: the broker may bring it again.
SELECT i.consumer, i.event_id, i.outcome
FROM postrider_inbox AS i {index postrider_inbox_age}
WHERE i.received_at < {ago :age}
  AND (:consumer IS NULL OR i.consumer = :consumer)
  AND (i.outcome = 'applied' OR NOT EXISTS (
      SELECT 1 FROM postrider_inbox_dlq AS d
      WHERE d.consumer = i.consumer AND d.event_id = i.event_id AND d.resolved_at IS NULL))
ORDER BY i.received_at LIMIT :limit
{lock_free}

-- name: clean_inbox
-- `:rows` is a JSON array of consumers and identities, found (and locked) by `clean_inbox_find`.

-- name: clean_inbox_ledger
-- Records what left. An entry of its own, to be folded later; on SQLite, writers are serial and there
-- is one row per consumer.
INSERT INTO postrider_inbox_ledger
    (consumer, received_count, ignored_count, applied_count, dead_count)
VALUES (:consumer, 0, 0, :applied, :dead)

-- name: clean_inbox_letters
-- So many of one consumer or of all, older than `:age`. Only what somebody resolved.

-- name: fold_inbox_ledger_last
SELECT max(id) AS last_id FROM postrider_inbox_ledger

-- name: fold_inbox_ledger_find
-- Entries of consumers that have not committed are locked, and skipped.
SELECT id FROM postrider_inbox_ledger WHERE id <= :last ORDER BY id LIMIT :limit {lock_free}

-- name: fold_inbox_ledger
-- Entries into one per consumer.
INSERT INTO postrider_inbox_ledger
    (consumer, received_count, ignored_count, applied_count, dead_count)
SELECT consumer, sum(received_count), sum(ignored_count), sum(applied_count), sum(dead_count)
FROM postrider_inbox_ledger WHERE id {among :ids} GROUP BY consumer

-- name: fold_inbox_ledger_delete
-- In the transaction of `fold_inbox_ledger`, so that a reader's snapshot has each entry exactly
-- once.
DELETE FROM postrider_inbox_ledger WHERE id {among :ids}
