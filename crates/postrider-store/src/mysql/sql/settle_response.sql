-- Ids, versions, answers or nothing, as JSON; the rows are locked. Runs before the rows are
-- removed, in the same transaction, so that the destination's answer is archived with the row.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    response MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.response = d.response
