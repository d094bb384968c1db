-- The next rows of the adopted table by id: $1 from (excluded), $2 maximum rows.
SELECT f.{id}::text FROM "{adopted}" AS f WHERE f.{id} > $1::{type} ORDER BY f.{id} LIMIT $2
