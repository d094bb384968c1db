-- The next open letters: from (excluded), to (included), rows.
SELECT CAST(f.{id} AS SIGNED) FROM `{letters}` AS f
WHERE f.{id} > ? AND f.{id} <= ? AND {unresolved} ORDER BY f.{id} LIMIT ?
