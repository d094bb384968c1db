-- Takes ids (JSON) that earlier statements locked. The relay is last, because JSON_TABLE comes
-- first.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]')) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.status = 'PROCESSING', o.locked_by = ?, o.locked_at = UTC_TIMESTAMP(6),
    o.version = (o.version + 1) & 9007199254740991, o.room = ''
