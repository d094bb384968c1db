-- The last id assigned, committed or not. MariaDB returns the table's counter in memory, including
-- open transactions; MySQL 8 would return a value cached for a day, which the session turns off.
SELECT CAST(AUTO_INCREMENT AS SIGNED) - 1 AS last_id FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{outbox}'
