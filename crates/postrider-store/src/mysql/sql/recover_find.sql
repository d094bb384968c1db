-- One step of a walk over the table: from (excluded), to (included), dead relays, live relays (both
-- JSON), stall time in ms. A plain read: a locking read would briefly lock every row, and a claim
-- would skip fresh rows until its next sweep.
SELECT id, version FROM `{outbox}` FORCE INDEX (PRIMARY)
WHERE id > ? AND id <= ? AND status = 'PROCESSING'
  AND (JSON_CONTAINS(?, JSON_QUOTE(locked_by))
       OR ((locked_by IS NULL OR NOT JSON_CONTAINS(?, JSON_QUOTE(locked_by)))
           AND (locked_at IS NULL
                OR locked_at < UTC_TIMESTAMP(6) - INTERVAL ? * 1000 MICROSECOND
                OR locked_at > UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)))
ORDER BY id
