-- $1 age in ms, $2 maximum rows.
DELETE FROM "{adopted}" WHERE {id} IN (
    SELECT f.{id} FROM "{adopted}" AS f
    WHERE {delivered} AND {at} < now() - $1 * interval '1 millisecond'
    LIMIT $2 FOR UPDATE SKIP LOCKED
)
