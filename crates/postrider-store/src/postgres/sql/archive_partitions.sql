-- Day partitions that hold only rows older than the retention ($1 in ms). Their names end with the
-- day.
SELECT c.relname AS name FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = '"{outbox}_archive"'::regclass AND c.relname ~ '_[0-9]{8}$'
  AND to_date(right(c.relname, 8), 'YYYYMMDD') + 1
      < (now() AT TIME ZONE 'UTC' - $1 * interval '1 millisecond')::date
