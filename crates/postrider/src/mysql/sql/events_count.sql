SELECT COUNT(*) FROM `{outbox}` FORCE INDEX (PRIMARY) WHERE {filter} AND id >= ? AND id < ?
