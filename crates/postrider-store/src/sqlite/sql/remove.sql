-- $1 ids that settle_find.sql or move_marked_find.sql found; they are in the ledger already.
DELETE FROM "{outbox}" WHERE id IN (SELECT value FROM json_each($1))
