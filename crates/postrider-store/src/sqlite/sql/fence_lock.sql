-- The immediate transaction around this statement waits for running settles. After the commit of
-- the new epoch, no later settle finds a row with its epoch.
SELECT fenced, epoch, heartbeat FROM postrider_relays WHERE id = $1
