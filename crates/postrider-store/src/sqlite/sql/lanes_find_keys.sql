-- The rows of some keys to read: $1 from, $2 to (inclusive), $3 maximum rows, $4 keys.
SELECT json_group_array(json_array(id, bytes)) AS found FROM (
    SELECT id, octet_length(payload) + coalesce(octet_length(headers), 0) + 256 AS bytes
    FROM "{outbox}" NOT INDEXED
    WHERE id >= $1 AND id <= $2 AND dead_reason IS NULL
      AND (aggregate_type, aggregate_id) IN (SELECT value ->> 0, value ->> 1 FROM json_each($4))
    ORDER BY id LIMIT $3
)
