-- Whether a dead letter was here until it was cleaned up, or its event was delivered after all. Asked
-- after the insert: a clean-up that was under way until then is seen.
SELECT EXISTS (SELECT 1 FROM "{outbox}_closed" WHERE original_id = $1 AND event_id = $2::uuid)
    OR EXISTS (SELECT 1 FROM "{outbox}_archive" WHERE id = $1 AND event_id = $2::uuid)
