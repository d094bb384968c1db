-- name: grants_consumer
-- Grants for a consumer with an inbox, and for the relay and the viewer on it.
--   GRANT SELECT, INSERT, UPDATE, DELETE ON postrider_inbox TO app, relay;  -- and on each of:
--       postrider_inbox_ledger, postrider_inbox_dlq, postrider_locks
--   GRANT SELECT ON postrider_inbox TO viewer;                    -- and the same on each of:
--       postrider_inbox_ledger, postrider_inbox_dlq

-- name: grants
-- Grants, for users that you create yourself. The application appends, the relay moves events, and
-- a viewer reads. Replace the user names, then run as an administrator. The triggers run with the
-- grants of the user that migrates. With a binary log, creating them needs
-- log_bin_trust_function_creators. An older version granted INSERT on the whole table: first run
-- REVOKE INSERT ON `{outbox}` FROM app;
--   GRANT INSERT (event_id, request_id, aggregate_type, aggregate_id, event_type, payload, headers,
--       content_hash, max_retries, next_retry_at, expires_at) ON `{outbox}` TO app;
--   GRANT SELECT (request_id, id) ON `{outbox}_keys` TO app;      -- the library's duplicate answer
--   GRANT SELECT, INSERT, UPDATE, DELETE ON `{outbox}` TO relay;  -- and the same on each of:
--       `{outbox}_keys`, `{outbox}_archive`, `{outbox}_dlq`, `{outbox}_closed`, `{outbox}_attempts`,
--       `{outbox}_ledger_entries`, `{outbox}_ledger`, postrider_relays, postrider_lanes,
--       postrider_parked_keys, postrider_audit, postrider_jobs, postrider_pauses,
--       postrider_buffer_batches, postrider_buffer_ledger
--   GRANT SELECT ON postrider_schema TO relay;                    -- and on postrider_outboxes
--   GRANT UPDATE (claim, mode_epoch) ON postrider_outboxes TO relay;      -- change of the claim mode
--   GRANT PROCESS ON *.* TO relay;   -- sees open transactions; without it, claims are slower
--   GRANT SELECT ON `{outbox}` TO viewer;                         -- and the same on each of:
--       `{outbox}_archive`, `{outbox}_dlq`, `{outbox}_attempts`, `{outbox}_ledger_entries`,
--       `{outbox}_ledger`, postrider_relays, postrider_lanes, postrider_parked_keys, postrider_audit,
--       postrider_jobs, postrider_pauses, postrider_schema,
--       postrider_buffer_batches, postrider_buffer_ledger, postrider_outboxes

-- name: drop_outbox
-- Drops all tables of one outbox; its triggers are dropped with their table.
DROP TABLE IF EXISTS `{outbox}`, `{outbox}_keys`, `{outbox}_archive`, `{outbox}_dlq`,
    `{outbox}_closed`, `{outbox}_attempts`, `{outbox}_ledger_entries`, `{outbox}_ledger`;
