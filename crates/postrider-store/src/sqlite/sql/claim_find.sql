-- Reads fresh rows by primary key above the remembered low id ($3), and waiting rows by their
-- index. Returns ids and bytes of both (measured like Event::weight_bytes), so that payloads are
-- read after the write lock is released.
-- $1 relay, $2 epoch, $4 maximum rows, $5 maximum waiting rows, $6 maximum ids that the scan may
-- pass, $7 shares, $8 the share.
-- No row: the relay was fenced. INDEXED BY: an error is better than a scan of a million rows.
WITH waiting AS MATERIALIZED (
    SELECT id, octet_length(payload) + coalesce(octet_length(headers), 0) + 256 AS bytes
    FROM "{outbox}" INDEXED BY "{outbox}_waiting"
    WHERE next_retry_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
      AND status IN ('PENDING', 'FAILED') AND crash_count < 2 AND id % $7 = $8
    ORDER BY next_retry_at, id LIMIT $5
),
-- The next id that exists, so that a gap of delivered ids costs nothing.
start AS MATERIALIZED (
    SELECT min(id) AS id FROM "{outbox}" WHERE id > $3
),
fresh AS MATERIALIZED (
    SELECT id, octet_length(payload) + coalesce(octet_length(headers), 0) + 256 AS bytes
    FROM "{outbox}" NOT INDEXED
    WHERE id >= (SELECT id FROM start) AND id < (SELECT id FROM start) + $6
      AND status = 'PENDING' AND next_retry_at IS NULL AND id % $7 = $8
    ORDER BY id LIMIT $4 - (SELECT count(*) FROM waiting)
)
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{outbox}'), 0) AS last_id,
    (SELECT id FROM start) AS start,
    (SELECT json_group_array(json_array(id, bytes)) FROM waiting) AS waiting,
    (SELECT json_group_array(json_array(id, bytes)) FROM fresh) AS fresh
WHERE EXISTS (SELECT 1 FROM postrider_relays WHERE id = $1 AND epoch = $2)
