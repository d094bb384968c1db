-- One step of a walk over the table: relay, from (excluded), to (included). A plain read: see
-- recover_find.
SELECT id FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE status = 'PROCESSING' AND locked_by = ? AND id > ? AND id <= ?
ORDER BY id
