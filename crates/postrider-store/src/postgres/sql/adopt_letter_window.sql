-- The next unresolved dead letters: $1 from (excluded), $2 to (included), $3 maximum rows.
SELECT f.{id}::bigint FROM "{letters}" AS f
WHERE f.{id} > $1 AND f.{id} <= $2 AND {unresolved} ORDER BY f.{id} LIMIT $3
