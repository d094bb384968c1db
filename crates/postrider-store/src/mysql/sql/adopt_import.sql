-- Imports the rows that adopt_find has found.
INSERT INTO `{outbox}` ({columns})
SELECT {values}
FROM `{adopted}` AS f WHERE f.{id} IN ({ids}) ORDER BY f.{id}
