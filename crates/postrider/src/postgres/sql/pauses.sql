SELECT kind, name, operator, note, paused_at FROM postrider_pauses ORDER BY kind, name
