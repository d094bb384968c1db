-- A runner that lost the job finds nothing. The write lock is held, so nobody takes it over now.
SELECT canary_ids, canary_passed, coalesce(canary_until < strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), false) AS overdue
FROM postrider_jobs WHERE id = $1 AND runner = $2 AND state IN ('running', 'canary')
