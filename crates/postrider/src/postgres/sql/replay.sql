-- $1 archived row ids, $2 their event ids, $3 the job id. The copy keeps event id, request id and
-- hash; the trigger accepts it because redrive_count is above zero. After a TRUNCATE or a restore
-- several archived events may share a row id, so the row id alone does not identify one.
INSERT INTO "{child}" (
    event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
    content_hash, redrive_count
)
SELECT o.event_id, o.request_id, o.aggregate_type, o.aggregate_id, o.event_type, o.payload,
    coalesce(o.headers, '{}') || jsonb_build_object('postrider-replay', $3::text), o.content_hash,
    least(greatest(o.redrive_count, 0), 999999) + 1
FROM "{outbox}_archive" AS o
WHERE o.id = ANY ($1)
  AND (o.id, o.event_id) IN (SELECT d.id, d.event_id FROM unnest($1, $2::text[]::uuid[]) AS d (id, event_id))
  AND o.delivered_at = (
      SELECT max(a.delivered_at) FROM "{outbox}_archive" AS a
      WHERE a.id = o.id AND a.event_id = o.event_id
  )
ORDER BY o.id
RETURNING id, event_id::text
