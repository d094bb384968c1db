-- The due rows of one window that are not in the outbox yet: from (excluded), to (included).
-- Separate from the insert, because its trigger writes request ids, which this statement reads
-- (error 1442).
SELECT CAST(f.{id} AS CHAR(36)) FROM `{adopted}` AS f
WHERE f.{id} > {own} AND f.{id} <= {own} AND {due}
  AND NOT EXISTS (SELECT 1 FROM `{outbox}` AS o WHERE o.event_id = {identity}){repeats}{given_up}
ORDER BY f.{id}
