-- $1 outbox, $2 work, $3 operator, $4 note, $5 rate, $6 and $7 canary, $8 max_id, $9 request key.
INSERT INTO postrider_jobs (
    outbox, work, operator, note, rate, canary_count, canary_within_s, max_id, request_key
) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id
