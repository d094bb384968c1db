-- Run by MySQL at each start (dev/services) or at its first one (compose.yaml).
-- Tests create a database each, and lanes read information_schema.innodb_trx (PROCESS).
CREATE USER IF NOT EXISTS 'postrider'@'%' IDENTIFIED BY 'postrider';
GRANT ALL PRIVILEGES ON *.* TO 'postrider'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS postrider CHARACTER SET utf8mb4;
