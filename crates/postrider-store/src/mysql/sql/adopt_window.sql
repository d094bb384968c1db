-- The next rows of the adopted table by id: from (excluded), maximum rows.
SELECT CAST(f.{id} AS CHAR(36)) FROM `{adopted}` AS f WHERE f.{id} > {own} ORDER BY f.{id} LIMIT ?
