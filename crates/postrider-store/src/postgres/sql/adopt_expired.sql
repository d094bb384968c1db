-- Counts the rows that adopt_clean would delete: $1 age in ms.
SELECT count(*) FROM "{adopted}" AS f
WHERE {delivered} AND {at} < now() - $1 * interval '1 millisecond'
