-- Consumer, identity. Whether the transaction, or one before it, has received it.
SELECT COUNT(*) FROM postrider_inbox WHERE consumer = ? AND event_id = ?
