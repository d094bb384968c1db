-- Ids and row ids of the fresh events, as JSON; operator; note.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', retried_as BIGINT PATH '$[1]')) AS d
STRAIGHT_JOIN `{outbox}_dlq` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.resolved = 1, o.resolved_at = UTC_TIMESTAMP(6), o.resolved_by = ?, o.resolution_note = ?,
    o.retried_as = d.retried_as, o.updated_at = UTC_TIMESTAMP(6)
