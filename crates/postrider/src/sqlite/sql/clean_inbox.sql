-- $1 rows found by clean_inbox_find (JSON: consumer, identity).
DELETE FROM postrider_inbox WHERE (consumer, event_id) IN (
    SELECT value ->> 0, value ->> 1 FROM json_each($1)
)
