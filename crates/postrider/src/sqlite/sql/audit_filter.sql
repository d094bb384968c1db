-- An absent filter is NULL.
($1 IS NULL OR operator = $1) AND ($2 IS NULL OR action = $2)
  AND ($3 IS NULL OR outbox = $3) AND ($4 IS NULL OR target = $4)
  AND ($5 IS NULL OR at >= $5) AND ($6 IS NULL OR at < $6)
