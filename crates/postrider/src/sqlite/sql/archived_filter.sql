-- An absent filter is NULL. All are COMPLETED ($1), and none has an error ($7).
($1 IS NULL OR $1 = 'COMPLETED') AND ($2 IS NULL OR event_type = $2)
  AND ($3 IS NULL OR aggregate_type = $3) AND ($4 IS NULL OR aggregate_id = $4)
  AND ($5 IS NULL OR event_id = $5) AND ($6 IS NULL OR request_id = $6)
  AND $7 IS NULL
  AND ($8 IS NULL OR created_at >= $8)
  AND ($9 IS NULL OR created_at < $9)
  AND ($10 IS NULL OR delivered_at >= $10)
  AND ($11 IS NULL OR delivered_at < $11)
  AND ($12 IS NULL OR
    (CASE WHEN json_valid(headers)
        THEN json_type(headers, '$."postrider-replay"') IS NOT NULL ELSE FALSE END) = $12)
