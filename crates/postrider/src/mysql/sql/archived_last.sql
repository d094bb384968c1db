SELECT COALESCE(MAX(id), 0) FROM `{outbox}_archive`
