SELECT id, epoch, heartbeat, fenced, host,
       (extract(epoch FROM now() - started_at) * 1000)::bigint AS age_ms, serving
FROM postrider_relays ORDER BY id
