SELECT count(*) FROM "{outbox}" WHERE {filter} AND id >= $13 AND id < $14
