-- An absent filter is NULL; $6 is a piece of the error text.
($1::uuid IS NULL OR event_id = $1) AND ($2::text IS NULL OR fingerprint = $2)
  AND ($3::text IS NULL OR event_type = $3) AND ($4::text IS NULL OR aggregate_type = $4)
  AND ($5::text IS NULL OR aggregate_id = $5)
  AND ($6::text IS NULL OR position(lower($6) IN lower(error_message)) > 0)
  AND ($7::text IS NULL OR reason = $7) AND ($8::boolean IS NULL OR resolved = $8)
  AND ($9::timestamptz IS NULL OR failed_at >= $9)
  AND ($10::timestamptz IS NULL OR failed_at < $10)
