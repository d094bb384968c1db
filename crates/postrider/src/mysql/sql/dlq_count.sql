SELECT COUNT(*) FROM `{outbox}_dlq` FORCE INDEX (PRIMARY) WHERE {filter} AND id >= ? AND id < ?
