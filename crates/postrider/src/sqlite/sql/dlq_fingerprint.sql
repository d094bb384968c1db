-- $1 a JSON array of ids and fingerprints.
UPDATE "{outbox}_dlq" AS o SET fingerprint = d.value ->> 1
FROM json_each($1) AS d
WHERE o.id = d.value ->> 0 AND o.fingerprint = ''
