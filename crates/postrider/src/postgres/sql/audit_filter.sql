-- An absent filter is NULL.
($1::text IS NULL OR operator = $1) AND ($2::text IS NULL OR action = $2)
  AND ($3::text IS NULL OR outbox = $3) AND ($4::text IS NULL OR target = $4)
  AND ($5::timestamptz IS NULL OR at >= $5) AND ($6::timestamptz IS NULL OR at < $6)
