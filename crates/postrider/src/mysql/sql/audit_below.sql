-- The end of the next step of a search: below an id, rows.
SELECT MIN(id), UTC_TIMESTAMP(6) FROM (
    SELECT id FROM postrider_audit FORCE INDEX (PRIMARY) WHERE id < ? ORDER BY id DESC LIMIT ?
) AS step
