-- An absent filter is NULL; $6 is a piece of the error text.
($1 IS NULL OR event_id = $1) AND ($2 IS NULL OR fingerprint = $2)
  AND ($3 IS NULL OR event_type = $3) AND ($4 IS NULL OR aggregate_type = $4)
  AND ($5 IS NULL OR aggregate_id = $5)
  AND ($6 IS NULL OR instr(lower(error_message), lower($6)) > 0)
  AND ($7 IS NULL OR reason = $7) AND ($8 IS NULL OR resolved = $8)
  AND ($9 IS NULL OR failed_at >= $9)
  AND ($10 IS NULL OR failed_at < $10)
