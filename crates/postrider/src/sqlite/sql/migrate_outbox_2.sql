-- Dead letters that upkeep has not seen yet. Nearly always empty.
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_unseen" ON "{outbox}_dlq" (id) WHERE fingerprint = '';
CREATE INDEX IF NOT EXISTS "{outbox}_dlq_event" ON "{outbox}_dlq" (event_id);
