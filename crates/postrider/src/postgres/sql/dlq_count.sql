SELECT count(*) FROM "{outbox}_dlq"
WHERE id < $1 AND ($2::text IS NULL OR event_type = $2)
  AND ($3::text IS NULL OR aggregate_type = $3) AND ($4::text IS NULL OR aggregate_id = $4)
  AND ($5::text IS NULL OR position(lower($5) IN lower(error_message)) > 0)
  AND ($6::text IS NULL OR reason = $6) AND ($7::boolean IS NULL OR resolved = $7)
  AND ($8::timestamptz IS NULL OR failed_at >= $8) AND ($9::timestamptz IS NULL OR failed_at < $9)
