-- The last id handed out, committed or not. MariaDB answers from the table's counter in memory,
-- open transactions included; MySQL 8 would answer from a cache of a day, which the session
-- switches off.
SELECT CAST(AUTO_INCREMENT AS SIGNED) - 1 AS last_id FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{outbox}'
