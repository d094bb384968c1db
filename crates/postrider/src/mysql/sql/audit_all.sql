-- Operator, action, outbox; targets and details, as JSON.
INSERT INTO postrider_audit (operator, action, outbox, target, detail)
SELECT ?, ?, ?, d.target, d.detail
FROM JSON_TABLE(?, '$[*]' COLUMNS (
    target VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]',
    detail TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]'
)) AS d
