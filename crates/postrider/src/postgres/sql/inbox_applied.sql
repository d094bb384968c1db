UPDATE postrider_inbox SET outcome = 'applied' WHERE consumer = $1 AND event_id = $2
