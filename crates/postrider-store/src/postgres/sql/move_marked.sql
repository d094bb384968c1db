-- Moves at most $1 rows marked DEAD_LETTER, with ids from $2 to $3, to the dead letters. If an
-- import from the backup file was faster, the dead letter exists and the row is only deleted.
WITH marked AS (
    SELECT id FROM "{outbox}" WHERE dead_reason IS NOT NULL AND status = 'DEAD_LETTER'
      AND id BETWEEN $2 AND $3
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM "{outbox}" AS o USING marked WHERE o.id = marked.id RETURNING o.*
),
moved AS (
    INSERT INTO "{outbox}_dlq" (
        original_id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
        headers, content_hash, reason, error_message, failed_at, retry_count,
        max_retries, redrive_count, event_created_at, expires_at
    )
    SELECT id, event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
        headers, content_hash, dead_reason, coalesce(last_error, ''), updated_at, retry_count,
        max_retries, redrive_count, created_at,
        CASE WHEN expires_at BETWEEN '0001-01-01Z' AND '9999-12-31Z' THEN expires_at END
    FROM gone
    ON CONFLICT (original_id, event_id) DO NOTHING
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT date_trunc('minute', created_at), event_type, 'dead', count(*), sum(id)
    FROM gone GROUP BY 1, 2
)
SELECT id, event_id::text FROM gone ORDER BY id
