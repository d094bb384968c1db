-- $1 consumer, $2 identity. Whether the transaction, or one before it, has received it.
SELECT COUNT(*) FROM postrider_inbox WHERE consumer = $1 AND event_id = $2
