-- The next unresolved dead letters: from (excluded), to (included), maximum rows.
SELECT CAST(f.{id} AS SIGNED) FROM `{letters}` AS f
WHERE f.{id} > ? AND f.{id} <= ? AND {unresolved} ORDER BY f.{id} LIMIT ?
