SELECT count(*) FROM "{outbox}_dlq"
WHERE id < $1 AND ($2 IS NULL OR event_type = $2)
  AND ($3 IS NULL OR aggregate_type = $3) AND ($4 IS NULL OR aggregate_id = $4)
  AND ($5 IS NULL OR instr(lower(error_message), lower($5)) > 0)
  AND ($6 IS NULL OR reason = $6) AND ($7 IS NULL OR resolved = $7)
  AND ($8 IS NULL OR failed_at >= $8) AND ($9 IS NULL OR failed_at < $9)
