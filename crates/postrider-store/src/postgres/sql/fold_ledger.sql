-- Sums up entries in one transaction, so that a reader's snapshot has each exactly once.
WITH taken AS (
    DELETE FROM "{outbox}_ledger_entries" WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM "{outbox}_ledger_entries" LIMIT $1 FOR UPDATE SKIP LOCKED
    ))
    RETURNING minute, event_type, kind, count, id_sum
),
folded AS (
    INSERT INTO "{outbox}_ledger" AS b (minute, event_type, kind, count, id_sum)
    SELECT minute, event_type, kind, sum(count), sum(id_sum) FROM taken GROUP BY 1, 2, 3
    ORDER BY 1, 2, 3
    ON CONFLICT (minute, event_type, kind)
    DO UPDATE SET count = b.count + excluded.count, id_sum = b.id_sum + excluded.id_sum
)
SELECT count(*) FROM taken
