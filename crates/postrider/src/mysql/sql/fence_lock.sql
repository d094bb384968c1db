-- FOR UPDATE waits for settles of that relay that are under way (they hold the row in share mode).
-- After the commit of the new epoch, every later settle finds no row with its epoch.
SELECT fenced, epoch, heartbeat FROM postrider_relays WHERE id = ? FOR UPDATE
