-- The due rows of one window that are not in the outbox yet: from (excluded), to (included).
INSERT INTO `{outbox}` ({columns})
SELECT {values}
FROM `{adopted}` AS f
WHERE f.{id} > ? AND f.{id} <= ? AND {due}
  AND NOT EXISTS (SELECT 1 FROM `{outbox}` AS o WHERE o.event_id = {identity}){repeats}
ORDER BY f.{id}
