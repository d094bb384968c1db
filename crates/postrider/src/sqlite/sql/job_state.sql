SELECT state FROM postrider_jobs WHERE id = $1
