-- Deletes rows by their physical positions when they were read: looking up each by its id took
-- twice as long. A position may hold another row by now, so the row's event id must be the one
-- expected for its id. (Searching for the id in a sorted array took 1 µs more per row.) The relay
-- passes the ledger's lines, because it has read these rows; its caller rolls back unless exactly
-- the requested rows are gone.
-- $1 relay, $2 epoch, $3 positions, $4 first id, $5 last id, $6 event ids from the first id to the
-- last, $7 version of all of them; for the ledger $8 minutes, $9 event types, $10 counts, $11 sums
-- of ids.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
recorded AS (
    INSERT INTO "{outbox}_ledger_entries" (minute, event_type, kind, count, id_sum)
    SELECT minute, event_type, 'delivered', count, id_sum::numeric
    FROM unnest($8::timestamptz[], $9::text[], $10::bigint[], $11::text[])
        AS lines (minute, event_type, count, id_sum)
)
DELETE FROM "{outbox}"
WHERE ctid = ANY ($3) AND version = $7 AND (locked_by = $1 OR locked_by IS NULL)
  -- A subscript must fit an integer, and the planner chooses the order of conditions.
  AND CASE WHEN id BETWEEN $4 AND $5
      THEN event_id = ($6::uuid[])[(id - $4)::integer + 1] END
  AND EXISTS (SELECT 1 FROM relay)
