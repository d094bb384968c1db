-- $1 ids in the archive, $2 the mark. Identity, request id and hash stay; the trigger lets it pass
-- because redrive_count is above zero.
INSERT INTO "{child}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, redrive_count
)
SELECT event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
    coalesce(headers, '{}') || jsonb_build_object('postrider-replay', $2::text), content_hash,
    least(greatest(redrive_count, 0), 999999) + 1
FROM "{outbox}_archive" WHERE id = ANY ($1) ORDER BY id
RETURNING id, event_id::text
