-- Parameters: age in ms, maximum rows.
DELETE a FROM (
    SELECT f.{id} AS id FROM `{adopted}` AS f
    WHERE {delivered} AND {at} < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
    LIMIT ? FOR UPDATE SKIP LOCKED
) AS old STRAIGHT_JOIN `{adopted}` AS a ON a.{id} = old.id
