import hashlib
import json
import os

import psycopg2


def content_hash(request_id, event_type, payload):
    return hashlib.sha256(f"{request_id or ''}|{event_type}|{payload}".encode()).hexdigest()


def append(cursor, aggregate_id, event_type, payload, request_id, headers):
    """Appends in the caller's transaction. Returns the row id, and whether it is a repeat."""
    cursor.execute(
        """INSERT INTO orders_outbox (request_id, aggregate_type, aggregate_id, event_type,
                                      payload, headers, content_hash)
           VALUES (%s, 'order', %s, %s, %s, %s, %s) RETURNING id""",
        (request_id, aggregate_id, event_type, payload, json.dumps(headers),
         content_hash(request_id, event_type, payload)),
    )
    row = cursor.fetchone()
    if row:
        return row[0], False
    # No row came back: the request id is known, and nothing was written.
    cursor.execute("SELECT id FROM orders_outbox_keys WHERE request_id = %s", (request_id,))
    return cursor.fetchone()[0], True


def place_order(connection, order, amount):
    with connection, connection.cursor() as cursor:  # commits, or rolls back on an exception
        cursor.execute("INSERT INTO calls (order_id) VALUES (%s)", (order,))
        event, repeated = append(
            cursor, order, "OrderPlaced", json.dumps({"order": order, "amount": amount}),
            request_id=f"order-{order}", headers={"source": "shop"},
        )
        if not repeated:
            cursor.execute("INSERT INTO orders (id, amount) VALUES (%s, %s)", (order, amount))
    return event, repeated


connection = psycopg2.connect(os.environ["DATABASE_URL"])
for attempt in range(2):  # the second call is a client that did not hear the first answer
    event, repeated = place_order(connection, "1001", 25)
    print(json.dumps({"id": event, "duplicate": repeated}))
