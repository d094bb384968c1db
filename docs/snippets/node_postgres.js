const { createHash } = require('node:crypto');
const { Client } = require('pg');

function contentHash(requestId, eventType, payload) {
  return createHash('sha256').update(`${requestId ?? ''}|${eventType}|${payload}`).digest('hex');
}

// Appends in the caller's transaction. Returns the row id, and whether it is a repeat.
async function append(client, { aggregateId, eventType, payload, requestId, headers }) {
  const inserted = await client.query(
    `INSERT INTO orders_outbox (request_id, aggregate_type, aggregate_id, event_type,
                                payload, headers, content_hash)
     VALUES ($1, 'order', $2, $3, $4, $5, $6) RETURNING id`,
    [requestId, aggregateId, eventType, payload, JSON.stringify(headers),
      contentHash(requestId, eventType, payload)],
  );
  if (inserted.rows.length > 0) return { id: inserted.rows[0].id, duplicate: false };
  // No row came back: the request id is known, and nothing was written.
  const known = await client.query(
    'SELECT id FROM orders_outbox_keys WHERE request_id = $1', [requestId]);
  return { id: known.rows[0].id, duplicate: true };
}

async function placeOrder(client, order, amount) {
  await client.query('BEGIN');
  try {
    await client.query('INSERT INTO calls (order_id) VALUES ($1)', [order]);
    const event = await append(client, {
      aggregateId: order,
      eventType: 'OrderPlaced',
      payload: JSON.stringify({ order, amount }),
      requestId: `order-${order}`,
      headers: { source: 'shop' },
    });
    if (!event.duplicate) {
      await client.query('INSERT INTO orders (id, amount) VALUES ($1, $2)', [order, amount]);
    }
    await client.query('COMMIT');
    return event;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

async function main() {
  const client = new Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  for (let call = 0; call < 2; call += 1) { // the second call did not hear the first answer
    const { id, duplicate } = await placeOrder(client, '1001', 25);
    console.log(JSON.stringify({ id: Number(id), duplicate })); // pg answers bigint as text
  }
  await client.end();
}

main().catch((error) => { console.error(error); process.exit(1); });
