-- Error 1062 when it is paused already.
INSERT INTO postrider_pauses (kind, name, operator, note) VALUES (?, ?, ?, ?)
