-- Rows that lie close together, by one scan of their range: looking up each by itself took four
-- times as long. Which of the range is meant says a bit each, so that a row which was committed
-- meanwhile is left alone. The books come from the relay, which has read these rows; its caller
-- takes all of it back unless exactly the rows that were asked for are gone.
-- $1 relay, $2 epoch, $3 first id, $4 last id, $5 bits from the first id on, $6 version of all of
-- them; for the books $7 minutes, $8 event types, $9 counts, $10 sums of ids.
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
WHERE id >= $3 AND id <= $4 AND version = $6 AND (locked_by = $1 OR locked_by IS NULL)
  -- get_bit fails beyond its bits, and the order of conditions is the planner's.
  AND CASE WHEN id >= $3 AND id <= $4 THEN get_bit($5::bytea, id - $3) END = 1
  AND EXISTS (SELECT 1 FROM relay)
