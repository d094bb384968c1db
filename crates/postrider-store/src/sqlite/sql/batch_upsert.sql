-- $1 fields and counts as JSON, sorted. SQLite turns a sum that is too large into a fraction; such a
-- row is left out here, and the caller sees that one is missing.
INSERT INTO "{table}" ("{key}", "{count}")
SELECT value ->> 0, value ->> 1 FROM json_each($1) WHERE true
ON CONFLICT ("{key}") DO UPDATE SET "{count}" = COALESCE("{count}", 0) + excluded."{count}"
WHERE typeof(COALESCE("{count}", 0) + excluded."{count}") = 'integer'
