SELECT count(*) FROM "{outbox}_dlq" WHERE NOT resolved
