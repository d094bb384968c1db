-- A runner that lost the job finds nothing; one that takes it over waits for the step under way.
SELECT canary_ids, canary_passed, coalesce(canary_until < now(), false) AS overdue
FROM postrider_jobs WHERE id = $1 AND runner = $2 AND state IN ('running', 'canary') FOR UPDATE
