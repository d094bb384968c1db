import json
import os

import psycopg2


def receive(cursor, consumer, event_id):
    """Records an event in the caller's transaction. Returns whether it is new."""
    cursor.execute(
        """INSERT INTO postrider_inbox (consumer, event_id) VALUES (%s, %s)
           ON CONFLICT DO NOTHING""",
        (consumer, event_id),
    )
    new = cursor.rowcount == 1
    cursor.execute(
        """INSERT INTO postrider_inbox_ledger (consumer, received_count, ignored_count)
           VALUES (%s, 1, %s)""",
        (consumer, 0 if new else 1),
    )
    return new


def handle(connection, event_id, order):
    with connection, connection.cursor() as cursor:  # commits, or rolls back on an exception
        new = receive(cursor, "mailer", event_id)
        if new:
            cursor.execute("INSERT INTO mails (order_id) VALUES (%s)", (order,))
    return new


connection = psycopg2.connect(os.environ["DATABASE_URL"])
for copy in range(2):  # the broker brings the same message twice
    print(json.dumps({"new": handle(connection, "01a1de67-f706-7218-baff-3aff86b12959", "1001")}))
