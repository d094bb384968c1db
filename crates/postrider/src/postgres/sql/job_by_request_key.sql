-- The job that was made under this key.
SELECT id FROM postrider_jobs WHERE request_key = $1
