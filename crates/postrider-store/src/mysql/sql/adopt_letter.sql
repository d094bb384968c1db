-- Imports one dead letter from before the adoption, unless its event is known or was retried since.
-- One per statement: a table without `resolved` may have several dead letters of one event.
INSERT INTO `{outbox}_dlq` ({columns})
SELECT {values}
FROM `{letters}` AS f
WHERE f.{id} = ?
  AND NOT EXISTS (SELECT 1 FROM `{outbox}_dlq` AS d WHERE d.event_id = {identity})
  AND NOT EXISTS (SELECT 1 FROM `{outbox}` AS o WHERE o.event_id = {identity}){alive}
