SELECT COUNT(*) FROM `{outbox}_archive` FORCE INDEX (PRIMARY) WHERE {filter} AND id >= ? AND id < ?
