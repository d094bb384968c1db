-- Older archives have one row per id, but after a TRUNCATE or a restore ids come again. Run only where that is
-- so: the table is written anew.
ALTER TABLE `{outbox}_archive` DROP PRIMARY KEY, ADD PRIMARY KEY (id, delivered_at);
