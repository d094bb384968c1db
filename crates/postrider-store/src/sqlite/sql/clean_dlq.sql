-- $1 ids that clean_dlq_find.sql found.
DELETE FROM "{outbox}_dlq" WHERE id IN (SELECT value FROM json_each($1))
