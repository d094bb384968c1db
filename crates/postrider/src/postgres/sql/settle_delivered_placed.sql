-- Rows by the places where they lay when they were read: looking up each by its id took twice as long. What
-- lies in a place may be another row by now, so its id and identity must be among those that are meant:
-- width_bucket finds the position of an id by bisection (0.2 µs a row). The books come from the relay, which
-- has read these rows; its caller takes all of it back unless exactly the rows that were asked for are gone.
-- $1 relay, $2 epoch, $3 places, $4 ids ascending, $5 their identities, $6 version of all of them; for the
-- books $7 minutes, $8 event types, $9 counts, $10 sums of ids.
WITH relay AS MATERIALIZED (
    SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2 FOR KEY SHARE
),
booked AS (
    INSERT INTO "{outbox}_book_entries" (minute, event_type, kind, count, id_sum)
    SELECT minute, event_type, 'delivered', count, id_sum::numeric
    FROM unnest($7::timestamptz[], $8::text[], $9::bigint[], $10::text[])
        AS lines (minute, event_type, count, id_sum)
)
DELETE FROM "{outbox}"
WHERE ctid = ANY ($3) AND version = $6 AND (locked_by = $1 OR locked_by IS NULL)
  AND id = ($4::bigint[])[width_bucket(id, $4::bigint[])]
  AND event_id = ($5::uuid[])[width_bucket(id, $4::bigint[])]
  AND EXISTS (SELECT 1 FROM relay)
