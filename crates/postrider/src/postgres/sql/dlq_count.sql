SELECT count(*) FROM "{outbox}_dlq" WHERE {filter} AND id >= $11 AND id < $12
