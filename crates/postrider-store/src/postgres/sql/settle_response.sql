-- Runs before the rows are removed, in the same transaction, so that the destination's answer is
-- archived with the row. $1 relay, $2 epoch, $3 ids, $4 versions, $5 answers, $6 event ids.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
)
UPDATE "{outbox}" AS o SET response = d.response
FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::uuid[])
    AS d (id, version, response, event_id)
WHERE o.id = d.id AND o.version = d.version AND o.event_id = d.event_id
  AND (o.locked_by = $1 OR o.locked_by IS NULL)
  AND EXISTS (SELECT 1 FROM relay)
