-- Field and count of each row, sorted by field.
INSERT INTO `{table}` (`{key}`, `{count}`) VALUES {rows}
ON DUPLICATE KEY UPDATE `{count}` = COALESCE(`{count}`, 0) + VALUES(`{count}`)
