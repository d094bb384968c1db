-- The destination's answer, for events whose answer is kept. Runs only if it is missing.
ALTER TABLE "{outbox}" ADD COLUMN response TEXT;
ALTER TABLE "{outbox}_archive" ADD COLUMN response TEXT;
