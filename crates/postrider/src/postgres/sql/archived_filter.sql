-- An absent filter is NULL. All are COMPLETED ($1), and none has an error ($7).
($1::text IS NULL OR $1 = 'COMPLETED') AND ($2::text IS NULL OR event_type = $2)
  AND ($3::text IS NULL OR aggregate_type = $3) AND ($4::text IS NULL OR aggregate_id = $4)
  AND ($5::uuid IS NULL OR event_id = $5) AND ($6::text IS NULL OR request_id = $6)
  AND $7::text IS NULL
  AND ($8::timestamptz IS NULL OR created_at >= $8)
  AND ($9::timestamptz IS NULL OR created_at < $9)
  AND ($10::timestamptz IS NULL OR delivered_at >= $10)
  AND ($11::timestamptz IS NULL OR delivered_at < $11)
  AND ($12::boolean IS NULL OR coalesce(headers ? 'postrider-replay', false) = $12)
