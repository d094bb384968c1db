-- The immediate transaction around this waits for settles that are under way. After the commit of
-- the new epoch, every later settle finds no row with its epoch.
SELECT fenced, epoch, heartbeat FROM postrider_relays WHERE id = $1
