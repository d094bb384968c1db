-- An absent filter is NULL; $7 is a piece of the error text. No live event is delivered ($10, $11).
($1::text IS NULL OR status = $1) AND ($2::text IS NULL OR event_type = $2)
  AND ($3::text IS NULL OR aggregate_type = $3) AND ($4::text IS NULL OR aggregate_id = $4)
  AND ($5::uuid IS NULL OR event_id = $5) AND ($6::text IS NULL OR request_id = $6)
  AND ($7::text IS NULL OR position(lower($7) IN lower(last_error)) > 0)
  AND ($8::timestamptz IS NULL OR created_at >= $8)
  AND ($9::timestamptz IS NULL OR created_at < $9)
  AND $10::timestamptz IS NULL AND $11::timestamptz IS NULL
  AND ($12::boolean IS NULL OR coalesce(headers ? 'postrider-replay', false) = $12)
