import hashlib
import json
import os
import sqlite3


def content_hash(request_id, event_type, payload):
    return hashlib.sha256(f"{request_id or ''}|{event_type}|{payload}".encode()).hexdigest()


def append(connection, aggregate_id, event_type, payload, request_id, headers):
    """Appends in the caller's transaction. Returns the row id, and whether it is a repeat."""
    inserted = connection.execute(
        """INSERT INTO orders_outbox (request_id, aggregate_type, aggregate_id, event_type,
                                      payload, headers, content_hash)
           VALUES (?, 'order', ?, ?, ?, ?, ?)""",
        (request_id, aggregate_id, event_type, payload, json.dumps(headers),
         content_hash(request_id, event_type, payload)),
    )
    if inserted.rowcount == 1:
        return inserted.lastrowid, False
    # No row was written: the request id is known.
    known = connection.execute("SELECT id FROM orders_outbox_keys WHERE request_id = ?",
                               (request_id,))
    return known.fetchone()[0], True


def place_order(connection, order, amount):
    connection.execute("BEGIN IMMEDIATE")  # not BEGIN: see "SQLite" below
    try:
        connection.execute("INSERT INTO calls (order_id) VALUES (?)", (order,))
        event, repeated = append(
            connection, order, "OrderPlaced", json.dumps({"order": order, "amount": amount}),
            request_id=f"order-{order}", headers={"source": "shop"},
        )
        if not repeated:
            connection.execute("INSERT INTO orders (id, amount) VALUES (?, ?)", (order, amount))
        connection.execute("COMMIT")
        return event, repeated
    except BaseException:
        connection.execute("ROLLBACK")
        raise


# isolation_level=None: this program begins its transactions itself.
connection = sqlite3.connect(os.environ["DATABASE_FILE"], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA busy_timeout = 5000")
connection.execute("PRAGMA synchronous = FULL")
for attempt in range(2):  # the second call is a client that did not hear the first answer
    event, repeated = place_order(connection, "1001", 25)
    print(json.dumps({"id": event, "duplicate": repeated}))
