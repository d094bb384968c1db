-- An absent filter is NULL, and then a column is compared with itself.
operator = COALESCE(?, operator) AND action = COALESCE(?, action)
  AND outbox = COALESCE(?, outbox) AND target = COALESCE(?, target)
  AND at >= COALESCE(?, at) AND at < COALESCE(?, '9999-12-31')
