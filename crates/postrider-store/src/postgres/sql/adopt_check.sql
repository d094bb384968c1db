
    IF EXISTS (SELECT 1 FROM inserted AS f WHERE f.{id}::text <> f.{id}::uuid::text) THEN
        RAISE check_violation USING MESSAGE = 'the id of this row is no UUID in lower case';
    END IF;
