-- The claimed rows, after claim_take: the version is the new one.
SELECT o.id, o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    o.headers, o.content_hash, o.created_at, o.expires_at, o.retry_count, o.max_retries,
    o.redrive_count, o.crash_count,
    CASE WHEN o.last_error IS NOT NULL THEN o.updated_at END AS last_failed_at,
    o.locked_at AS claimed_at, o.version
FROM JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
