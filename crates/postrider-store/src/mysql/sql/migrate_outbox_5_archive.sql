-- Older archives have one row per id, but ids are reused after a TRUNCATE or a restore. Runs only
-- for those archives, because it rewrites the table.
ALTER TABLE `{outbox}_archive` DROP PRIMARY KEY, ADD PRIMARY KEY (id, delivered_at);
