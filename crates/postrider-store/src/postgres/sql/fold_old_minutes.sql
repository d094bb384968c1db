-- Sums up minutes older than $1 ms by type and kind, at most $2 lines.
WITH taken AS (
    DELETE FROM "{outbox}_ledger" WHERE (minute, event_type, kind) IN (
        SELECT minute, event_type, kind FROM "{outbox}_ledger"
        WHERE minute > to_timestamp(0) AND minute < now() - $1 * interval '1 millisecond'
        ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED
    )
    RETURNING event_type, kind, count, id_sum
),
folded AS (
    INSERT INTO "{outbox}_ledger" AS b (minute, event_type, kind, count, id_sum)
    SELECT to_timestamp(0), event_type, kind, sum(count), sum(id_sum) FROM taken GROUP BY 2, 3
    ORDER BY 2, 3
    ON CONFLICT (minute, event_type, kind)
    DO UPDATE SET count = b.count + excluded.count, id_sum = b.id_sum + excluded.id_sum
)
SELECT count(*) FROM taken
