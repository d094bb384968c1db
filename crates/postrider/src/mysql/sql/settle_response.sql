-- Ids, versions, answers or nothing, as JSON; the rows are locked. Before they leave, in the same
-- transaction: what the destination answered goes with the row.
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]',
    response MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[2]'
)) AS d
STRAIGHT_JOIN `{outbox}` AS o FORCE INDEX (PRIMARY) ON o.id = d.id
SET o.response = d.response
