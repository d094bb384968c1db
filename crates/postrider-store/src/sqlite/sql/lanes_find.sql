-- The rows to read, due or not: $1 after, $2 maximum rows, $3 hidden keys, $4 known ids. Returns
-- ids and bytes (measured like Event::weight_bytes), so that rows over the byte limit are not read
-- at all. Also returns the last id of the same snapshot: SQLite has one writer at a time, so
-- nothing at or below it can still commit.
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
