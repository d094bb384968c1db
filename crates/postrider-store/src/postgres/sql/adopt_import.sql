-- The due rows of one window that are not in the outbox yet: $1 from (excluded), $2 to (included).
INSERT INTO "{outbox}" ({columns})
SELECT {values}
FROM "{adopted}" AS f
WHERE f.{id} > $1::{type} AND f.{id} <= $2::{type} AND {due}
  AND NOT EXISTS (SELECT 1 FROM "{outbox}" AS o WHERE o.event_id = {identity}){repeats}{given_up}
ORDER BY f.{id}
