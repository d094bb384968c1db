-- $1 ids, $2 fingerprints.
UPDATE "{outbox}_dlq" AS o SET fingerprint = d.fingerprint
FROM unnest($1::bigint[], $2::text[]) AS d (id, fingerprint)
WHERE o.id = d.id AND o.fingerprint = ''
