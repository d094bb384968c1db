SELECT count(*) FROM "{outbox}_archive" WHERE {filter} AND id >= $13 AND id < $14
