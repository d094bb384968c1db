-- Drops all tables of one outbox; its triggers are dropped with their table.
DROP TABLE IF EXISTS `{outbox}`, `{outbox}_keys`, `{outbox}_archive`, `{outbox}_dlq`,
    `{outbox}_closed`, `{outbox}_attempts`, `{outbox}_ledger_entries`, `{outbox}_ledger`;
