import json
import os
import sqlite3


def receive(connection, consumer, event_id):
    """Records an event in the caller's transaction. Returns whether it is new."""
    cursor = connection.execute(
        """INSERT INTO postrider_inbox (consumer, event_id) VALUES (?, ?)
           ON CONFLICT DO NOTHING""",
        (consumer, event_id),
    )
    new = cursor.rowcount == 1
    connection.execute(
        """INSERT INTO postrider_inbox_ledger (consumer, received_count, ignored_count)
           VALUES (?, 1, ?)
           ON CONFLICT (consumer) DO UPDATE
           SET received_count = received_count + excluded.received_count,
               ignored_count = ignored_count + excluded.ignored_count""",
        (consumer, 0 if new else 1),
    )
    return new


def handle(connection, event_id, order):
    connection.execute("BEGIN IMMEDIATE")
    try:
        new = receive(connection, "mailer", event_id)
        if new:
            connection.execute("INSERT INTO mails (order_id) VALUES (?)", (order,))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return new


connection = sqlite3.connect(os.environ["DATABASE_FILE"], timeout=5, isolation_level=None)
connection.execute("PRAGMA synchronous = FULL")
for copy in range(2):  # the broker brings the same message twice
    print(json.dumps({"new": handle(connection, "01a1de67-f706-7218-baff-3aff86b12959", "1001")}))
