-- The kind of a dead letter's error, from the program; '' until upkeep has computed it. Run only
-- where the column is missing: an ALTER waits for every open transaction on the table.
ALTER TABLE `{outbox}_dlq`
    ADD COLUMN fingerprint VARCHAR(16) NOT NULL DEFAULT '',
    ADD INDEX `{outbox}_dlq_kind` (fingerprint),
    -- All that the groups of unresolved ones need.
    ADD INDEX `{outbox}_dlq_groups` (resolved, id, fingerprint, event_type, failed_at),
    ADD INDEX `{outbox}_dlq_event` (event_id);
