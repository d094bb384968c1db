-- Reads the state of the buffer at one moment. KEYS: buffer, list of batches, ledger.
return {redis.call('HLEN', KEYS[1]), redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3])}
