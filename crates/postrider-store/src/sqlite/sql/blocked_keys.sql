-- $1 outbox, $2 maximum keys, $3 maximum rows of the search and of the count. The head of a key is
-- its oldest event that was tried and waits; the events behind it are counted in one pass over the
-- table.
WITH waiting AS MATERIALIZED (
    SELECT id, aggregate_type, aggregate_id, last_error, retry_count, next_retry_at
    FROM (
        -- Millions of rows may wait without having been tried.
        SELECT id, aggregate_type, aggregate_id, last_error, retry_count, next_retry_at, status
        FROM "{outbox}" INDEXED BY "{outbox}_waiting"
        WHERE next_retry_at IS NOT NULL AND dead_reason IS NULL
        ORDER BY next_retry_at, id LIMIT $3
    ) AS looked_at
    WHERE status = 'FAILED' OR last_error IS NOT NULL
    ORDER BY next_retry_at, id LIMIT $2
),
-- With min(), SQLite takes the other columns from the row that has the minimum.
heads AS (
    SELECT aggregate_type, aggregate_id, min(id) AS id, last_error, retry_count, next_retry_at
    FROM waiting GROUP BY 1, 2
),
parked AS (
    SELECT aggregate_type, aggregate_id FROM postrider_parked_keys WHERE outbox = $1 LIMIT $2
),
keys AS MATERIALIZED (
    SELECT coalesce(h.aggregate_type, p.aggregate_type) AS aggregate_type,
        coalesce(h.aggregate_id, p.aggregate_id) AS aggregate_id,
        h.id AS head_id, h.last_error, coalesce(h.retry_count, 0) AS retry_count, h.next_retry_at,
        p.aggregate_type IS NOT NULL AS parked
    FROM heads AS h FULL JOIN parked AS p
        ON p.aggregate_type = h.aggregate_type AND p.aggregate_id = h.aggregate_id
),
scanned AS MATERIALIZED (
    SELECT id, aggregate_type, aggregate_id FROM "{outbox}" NOT INDEXED
    WHERE id >= (SELECT min(coalesce(head_id, 0)) FROM keys) ORDER BY id LIMIT $3
),
counted AS MATERIALIZED (
    SELECT s.aggregate_type, s.aggregate_id, count(*) AS waiting, min(s.id) AS first_id
    FROM scanned AS s CROSS JOIN keys AS k
        ON k.aggregate_type = s.aggregate_type AND k.aggregate_id = s.aggregate_id
    WHERE s.id > coalesce(k.head_id, 0)
    GROUP BY 1, 2
)
SELECT k.aggregate_type, k.aggregate_id, k.head_id, k.last_error, k.retry_count, k.next_retry_at,
    coalesce(c.waiting, 0) AS waiting, (SELECT count(*) FROM scanned) >= $3 AS more, k.parked
FROM keys AS k LEFT JOIN counted AS c
    ON c.aggregate_type = k.aggregate_type AND c.aggregate_id = k.aggregate_id
ORDER BY coalesce(k.head_id, c.first_id) IS NULL, coalesce(k.head_id, c.first_id),
    k.aggregate_type, k.aggregate_id
LIMIT $2
