-- name: append
-- Appends one event. Returns no row if the trigger skipped a repeated request id.
INSERT INTO "{outbox}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, next_retry_at, expires_at
)
SELECT $1, $2, $3, $4, $5, $6, $7::jsonb, $8, $9,
       now() + $10 * interval '1 millisecond', now() + $11 * interval '1 millisecond'
RETURNING id

-- name: append_all
-- Appends many events in one statement, in the given order (see insert_order): ids ascend with it.
INSERT INTO "{outbox}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, max_retries, next_retry_at, expires_at
)
SELECT e.event_id, e.request_id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.headers::jsonb, e.content_hash, e.max_retries,
       now() + e.deliver_after_ms * interval '1 millisecond',
       now() + e.expires_after_ms * interval '1 millisecond'
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::text[], $9::integer[], $10::bigint[], $11::bigint[])
     WITH ORDINALITY AS e (event_id, request_id, aggregate_type, aggregate_id, event_type, payload,
            headers, content_hash, max_retries, deliver_after_ms, expires_after_ms, position)
ORDER BY e.position
RETURNING id, event_id, request_id

-- name: find_keys
-- The first events of request ids that were skipped as repeats.
SELECT request_id, id FROM "{outbox}_keys" WHERE request_id = ANY($1)
