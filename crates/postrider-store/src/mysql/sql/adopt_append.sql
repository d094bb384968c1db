-- Appends each row that is inserted into the adopted table as an event, in the application's own
-- transaction. A repeated request id fails with 1062, like the table's own unique index.
CREATE OR REPLACE TRIGGER `{outbox}_adopt_append` AFTER INSERT ON `{adopted}` FOR EACH ROW
BEGIN{check}
    IF {due} THEN
        INSERT INTO `{outbox}` ({columns})
        VALUES ({values});
    END IF;
END
