-- Read before the list of writers: see store/horizon.rs. NULL-safe for a sequence never used.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END AS last_id FROM "{outbox}_id_seq"
