-- Counts the rows that adopt_clean would delete. Parameter: age in ms.
SELECT COUNT(*) FROM `{adopted}` AS f
WHERE {delivered} AND {at} < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
