SELECT count(*) FROM "{outbox}_archive" WHERE {filter} AND id >= $12 AND id < $13
