-- Inside the immediate transaction: upkeep cannot move the row between this look and the import.
SELECT id FROM "{outbox}" WHERE id = $1 AND event_id = $2
