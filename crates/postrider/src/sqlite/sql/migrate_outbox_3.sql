-- What the destination answered, for events whose answer is kept. Run only where it is missing.
ALTER TABLE "{outbox}" ADD COLUMN response TEXT;
ALTER TABLE "{outbox}_archive" ADD COLUMN response TEXT;
