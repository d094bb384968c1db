const { createHash } = require('node:crypto');
const mysql = require('mysql2/promise');

const DUPLICATE_ENTRY = 1062;

function contentHash(requestId, eventType, payload) {
  return createHash('sha256').update(`${requestId ?? ''}|${eventType}|${payload}`).digest('hex');
}

// Appends in the caller's transaction. Returns the row id, and whether it is a repeat.
async function append(connection, { aggregateId, eventType, payload, requestId, headers }) {
  try {
    const [inserted] = await connection.execute(
      `INSERT INTO orders_outbox (request_id, aggregate_type, aggregate_id, event_type,
                                  payload, headers, content_hash)
       VALUES (?, 'order', ?, ?, ?, ?, ?)`,
      [requestId, aggregateId, eventType, payload, JSON.stringify(headers),
        contentHash(requestId, eventType, payload)],
    );
    return { id: inserted.insertId, duplicate: false };
  } catch (error) {
    const repeated = error.errno === DUPLICATE_ENTRY
      && error.sqlMessage.includes('orders_outbox_keys');
    if (!repeated) throw error;
  }
  // Only the INSERT was undone; the transaction goes on. LOCK IN SHARE MODE, because the snapshot
  // of REPEATABLE READ may be older than the first event.
  const [known] = await connection.execute(
    'SELECT id FROM orders_outbox_keys WHERE request_id = ? LOCK IN SHARE MODE', [requestId]);
  return { id: known[0].id, duplicate: true };
}

async function placeOrder(connection, order, amount) {
  await connection.beginTransaction();
  try {
    await connection.execute('INSERT INTO calls (order_id) VALUES (?)', [order]);
    const event = await append(connection, {
      aggregateId: order,
      eventType: 'OrderPlaced',
      payload: JSON.stringify({ order, amount }),
      requestId: `order-${order}`,
      headers: { source: 'shop' },
    });
    if (!event.duplicate) {
      await connection.execute('INSERT INTO orders (id, amount) VALUES (?, ?)', [order, amount]);
    }
    await connection.commit();
    return event;
  } catch (error) {
    await connection.rollback();
    throw error;
  }
}

async function main() {
  const connection = await mysql.createConnection(process.env.DATABASE_URL);
  for (let call = 0; call < 2; call += 1) { // the second call did not hear the first answer
    console.log(JSON.stringify(await placeOrder(connection, '1001', 25)));
  }
  await connection.end();
}

main().catch((error) => { console.error(error); process.exit(1); });
