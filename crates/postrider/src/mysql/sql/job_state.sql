SELECT state FROM postrider_jobs WHERE id = ? FOR UPDATE
