-- FOR UPDATE waits for running settles of that relay, which hold the row in share mode. After the
-- commit of the new epoch, no later settle finds a row with its epoch.
SELECT fenced, epoch, heartbeat FROM postrider_relays WHERE id = ? FOR UPDATE
