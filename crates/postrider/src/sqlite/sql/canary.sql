-- Where the events with these row ids are: still in the outbox, or dead letters. The rest is
-- delivered.
SELECT (SELECT count(*) FROM "{outbox}" WHERE id IN (SELECT value FROM json_each($1))),
    (SELECT count(*) FROM "{outbox}_dlq" WHERE original_id IN (SELECT value FROM json_each($1)))
