-- One letter that was there before the adoption, unless its event is known, or was sent again since.
-- One statement each: a table without `resolved` may have several of one event.
INSERT INTO `{outbox}_dlq` ({columns})
SELECT {values}
FROM `{letters}` AS f
WHERE f.{id} = ?
  AND NOT EXISTS (SELECT 1 FROM `{outbox}_dlq` AS d WHERE d.event_id = {identity})
  AND NOT EXISTS (SELECT 1 FROM `{outbox}` AS o WHERE o.event_id = {identity}){alive}
