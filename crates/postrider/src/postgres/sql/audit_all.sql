-- $1 operator, $2 action, $3 outbox, $4 targets, $5 details.
INSERT INTO postrider_audit (operator, action, outbox, target, detail)
SELECT $1, $2, $3, d.target, d.detail FROM unnest($4::text[], $5::text[]) AS d (target, detail)
