-- Converts any text of a column. A text that is not a JSON object becomes the header `headers`: it
-- must neither be lost nor make the application's insert fail.
CREATE OR REPLACE FUNCTION "{outbox}_adopt_headers"(stored text) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    parsed jsonb;
BEGIN
    IF stored IS NULL OR trim(stored) IN ('', 'null') THEN
        RETURN NULL;
    END IF;
    BEGIN
        parsed := stored::jsonb;
    EXCEPTION WHEN data_exception THEN
        parsed := NULL;
    END;
    IF jsonb_typeof(parsed) = 'object' THEN
        RETURN parsed;
    END IF;
    RETURN jsonb_build_object('headers', stored);
END $$;
