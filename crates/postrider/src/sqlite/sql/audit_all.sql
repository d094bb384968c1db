-- $1 operator, $2 action, $3 outbox, $4 a JSON array of targets and details.
INSERT INTO postrider_audit (operator, action, outbox, target, detail)
SELECT $1, $2, $3, d.value ->> 0, d.value ->> 1 FROM json_each($4) AS d
