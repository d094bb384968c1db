-- $1 buffer, $2 age, $3 maximum rows. A dead batch is kept until an operator imports it.
DELETE FROM postrider_buffer_batches WHERE id IN (
    SELECT id FROM postrider_buffer_batches
    WHERE buffer = $1 AND recorded_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', $2)
      AND state <> 'dead'
    ORDER BY recorded_at LIMIT $3)
