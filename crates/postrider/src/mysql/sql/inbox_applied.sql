UPDATE postrider_inbox SET outcome = 'applied' WHERE consumer = ? AND event_id = ?
