-- Which rows to read, due or not: $1 after, $2 rows, $3 hidden keys, $4 known ids. Ids and bytes
-- (weighed as Event::weight_bytes), so that rows over the limit of bytes are not read at all. The
-- last id of the same snapshot: writers are serial, so nothing at or below it can still commit.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{outbox}'), 0) AS last_id,
    (SELECT json_group_array(json_array(id, bytes)) FROM (
        SELECT id, octet_length(payload) + coalesce(octet_length(headers), 0) + 256 AS bytes
        FROM "{outbox}" NOT INDEXED
        WHERE id > $1 AND dead_reason IS NULL
          AND (aggregate_type, aggregate_id) NOT IN (
              SELECT value ->> 0, value ->> 1 FROM json_each($3)
          )
          AND id NOT IN (SELECT value FROM json_each($4))
        ORDER BY id LIMIT $2
    )) AS found
