-- A row that is inserted into the adopted table is an event, in the writer's own transaction. A
-- repeated request id fails with 1062, as the table's own unique index would.
CREATE OR REPLACE TRIGGER `{outbox}_adopt_append` AFTER INSERT ON `{adopted}` FOR EACH ROW
BEGIN{check}
    IF {due} THEN
        INSERT INTO `{outbox}` ({columns})
        VALUES ({values});
    END IF;
END
