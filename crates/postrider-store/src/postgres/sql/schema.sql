-- name: grants_consumer
-- Grants for a consumer with an inbox, and for the relay and the viewer on it.
--   GRANT SELECT, INSERT, UPDATE, DELETE ON postrider_inbox, postrider_inbox_ledger,
--       postrider_inbox_dlq TO app;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON postrider_inbox, postrider_inbox_ledger,
--       postrider_inbox_dlq TO relay;
--   GRANT SELECT ON postrider_inbox, postrider_inbox_ledger, postrider_inbox_dlq TO viewer;

-- name: grants
-- Grants, for roles that you create yourself. The application appends, the relay moves events, and
-- a viewer reads. Replace the role names, then run as the owner of the tables. An older version
-- granted INSERT on the whole table: first run REVOKE INSERT ON "{outbox}" FROM app;
--   GRANT INSERT (event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
--       content_hash, max_retries, next_retry_at, expires_at),
--       SELECT (id, event_id, request_id) ON "{outbox}" TO app;           -- SELECT: the answer
--   GRANT SELECT (id, request_id) ON "{outbox}_keys" TO app;      -- the library's duplicate answer
--   GRANT SELECT, INSERT, UPDATE, DELETE ON "{outbox}", "{outbox}_keys", "{outbox}_archive",
--       "{outbox}_dlq", "{outbox}_closed", "{outbox}_attempts", "{outbox}_ledger_entries",
--       "{outbox}_ledger", postrider_relays, postrider_lanes, postrider_parked_keys, postrider_audit,
--       postrider_jobs, postrider_pauses, postrider_buffer_batches, postrider_buffer_ledger TO relay;
--   GRANT SELECT ON SEQUENCE "{outbox}_id_seq" TO relay;                  -- late commits
--   GRANT EXECUTE ON FUNCTION postrider_lane(text, text) TO relay;        -- claim mode lanes
--   GRANT SELECT ON postrider_schema, postrider_outboxes TO relay;
--   GRANT UPDATE (claim, mode_epoch) ON postrider_outboxes TO relay;      -- change of the claim mode
--   GRANT SELECT ON "{outbox}", "{outbox}_archive", "{outbox}_dlq", "{outbox}_attempts",
--       "{outbox}_ledger_entries", "{outbox}_ledger", postrider_relays, postrider_lanes,
--       postrider_parked_keys, postrider_audit, postrider_jobs, postrider_pauses, postrider_schema,
--       postrider_buffer_batches, postrider_buffer_ledger,
--       postrider_outboxes TO viewer;
-- Creating and dropping archive partitions needs ownership: a relay without it keeps archived rows
-- in the default partition and deletes them in chunks instead.

-- name: drop_outbox
-- Drops all tables and functions of one outbox.
DROP TABLE IF EXISTS "{outbox}", "{outbox}_keys", "{outbox}_archive", "{outbox}_dlq",
    "{outbox}_closed", "{outbox}_attempts", "{outbox}_ledger_entries", "{outbox}_ledger";
DROP FUNCTION IF EXISTS "{outbox}_remember"(), "{outbox}_record"(), "{outbox}_forget"(),
    "{outbox}_notify"(), "{outbox}_guard"(), "{outbox}_refuse"();
