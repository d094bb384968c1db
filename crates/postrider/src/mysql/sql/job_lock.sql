-- A runner that lost the job finds nothing; one that takes it over waits for the step under way.
SELECT canary_ids, canary_passed, COALESCE(canary_until < UTC_TIMESTAMP(6), 0) AS overdue
FROM postrider_jobs WHERE id = ? AND runner = ? AND state IN ('running', 'canary') FOR UPDATE
