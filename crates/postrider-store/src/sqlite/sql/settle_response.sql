-- Runs before the rows are removed, in the same transaction, so that the destination's answer is
-- archived with the row. $1 ids that settle_find.sql found, $2 a JSON array of ids and answers.
UPDATE "{outbox}" AS o SET response = d.value ->> 1
FROM json_each($2) AS d
WHERE o.id = d.value ->> 0 AND o.id IN (SELECT value FROM json_each($1))
