SELECT count(*) FROM "{outbox}" WHERE {filter} AND id >= $12 AND id < $13
