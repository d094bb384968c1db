import hashlib
import json
import os
from urllib.parse import urlsplit

import pymysql

DUPLICATE_ENTRY = 1062


def content_hash(request_id, event_type, payload):
    return hashlib.sha256(f"{request_id or ''}|{event_type}|{payload}".encode()).hexdigest()


def append(cursor, aggregate_id, event_type, payload, request_id, headers):
    """Appends in the caller's transaction. Returns the row id, and whether it is a repeat."""
    try:
        cursor.execute(
            """INSERT INTO orders_outbox (request_id, aggregate_type, aggregate_id, event_type,
                                          payload, headers, content_hash)
               VALUES (%s, 'order', %s, %s, %s, %s, %s)""",
            (request_id, aggregate_id, event_type, payload, json.dumps(headers),
             content_hash(request_id, event_type, payload)),
        )
        return cursor.lastrowid, False
    except pymysql.err.IntegrityError as error:
        number, message = error.args
        if number != DUPLICATE_ENTRY or "orders_outbox_keys" not in message:
            raise
    # Only the INSERT was undone; the transaction goes on. LOCK IN SHARE MODE, because the snapshot
    # of REPEATABLE READ may be older than the first event.
    cursor.execute("SELECT id FROM orders_outbox_keys WHERE request_id = %s LOCK IN SHARE MODE",
                   (request_id,))
    return cursor.fetchone()[0], True


def place_order(connection, order, amount):
    connection.begin()
    try:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO calls (order_id) VALUES (%s)", (order,))
            event, repeated = append(
                cursor, order, "OrderPlaced", json.dumps({"order": order, "amount": amount}),
                request_id=f"order-{order}", headers={"source": "shop"},
            )
            if not repeated:
                cursor.execute("INSERT INTO orders (id, amount) VALUES (%s, %s)", (order, amount))
        connection.commit()
        return event, repeated
    except BaseException:
        connection.rollback()
        raise


url = urlsplit(os.environ["DATABASE_URL"])
connection = pymysql.connect(host=url.hostname, port=url.port or 3306, user=url.username,
                             password=url.password or "", database=url.path[1:],
                             charset="utf8mb4")
for attempt in range(2):  # the second call is a client that did not hear the first answer
    event, repeated = place_order(connection, "1001", 25)
    print(json.dumps({"id": event, "duplicate": repeated}))
