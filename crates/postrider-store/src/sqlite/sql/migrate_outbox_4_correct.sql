-- Corrects rows from before the guard, once. See migrate_outbox_4_guard.sql for the values refused
-- since.
UPDATE "{outbox}" SET
    next_retry_at = CASE WHEN next_retry_at IS NULL AND status IN ('FAILED', 'DEAD_LETTER')
        THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') ELSE next_retry_at END,
    status = CASE WHEN status = 'DEAD_LETTER' AND dead_reason IS NULL THEN 'PENDING' ELSE status END,
    dead_reason = CASE WHEN status <> 'DEAD_LETTER' OR dead_reason IS NULL THEN NULL
        WHEN dead_reason IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash')
        THEN dead_reason ELSE 'integrity' END,
    updated_at = CASE WHEN updated_at NOT GLOB '????-??-??T??:??:??.???Z'
        THEN strftime('%Y-%m-%dT%H:%M:%fZ', 'now') ELSE updated_at END,
    locked_at = CASE WHEN locked_at NOT GLOB '????-??-??T??:??:??.???Z' THEN NULL ELSE locked_at END,
    locked_by = CASE WHEN status = 'PROCESSING' AND typeof(locked_by) = 'text' THEN locked_by END,
    last_error = CASE WHEN typeof(last_error) = 'text' THEN last_error END,
    response = CASE WHEN typeof(response) = 'text' THEN response END,
    retry_count = min(max(CAST(retry_count AS INTEGER), 0), 1000000),
    redrive_count = min(max(CAST(redrive_count AS INTEGER), 0), 1000000),
    crash_count = min(max(CAST(crash_count AS INTEGER), 0), 1000000),
    max_retries = min(max(max_retries, 1), 1000),
    version = CASE WHEN typeof(version) = 'integer' AND version BETWEEN 0 AND 9007199254740990
        THEN version + 1 ELSE 1 END
WHERE typeof(retry_count) <> 'integer' OR retry_count NOT BETWEEN 0 AND 1000000
    OR typeof(redrive_count) <> 'integer' OR redrive_count NOT BETWEEN 0 AND 1000000
    OR typeof(crash_count) <> 'integer' OR crash_count NOT BETWEEN 0 AND 1000000
    OR typeof(version) <> 'integer' OR version NOT BETWEEN 0 AND 9007199254740991
    OR max_retries NOT BETWEEN 1 AND 1000
    OR typeof(locked_by) NOT IN ('text', 'null')
    OR typeof(last_error) NOT IN ('text', 'null')
    OR typeof(dead_reason) NOT IN ('text', 'null')
    OR typeof(response) NOT IN ('text', 'null')
    OR updated_at NOT GLOB '????-??-??T??:??:??.???Z'
    OR locked_at NOT GLOB '????-??-??T??:??:??.???Z'
    OR (status = 'FAILED' AND next_retry_at IS NULL)
    OR (status <> 'PROCESSING' AND locked_by IS NOT NULL)
    OR (status = 'DEAD_LETTER') <> (dead_reason IS NOT NULL)
    OR dead_reason NOT IN ('exhausted', 'rejected', 'integrity', 'no_route', 'expired', 'crash');
