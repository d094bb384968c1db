-- $1 buffer, $2 age in ms, $3 maximum rows. A dead batch is kept until an operator imports it.
DELETE FROM postrider_buffer_batches WHERE id IN (
    SELECT id FROM postrider_buffer_batches
    WHERE buffer = $1 AND recorded_at < now() - $2 * interval '1 millisecond' AND state <> 'dead'
    ORDER BY recorded_at LIMIT $3 FOR UPDATE SKIP LOCKED)
