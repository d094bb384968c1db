-- How the buffer is doing, at one moment. KEYS: buffer, list of batches, book.
return {redis.call('HLEN', KEYS[1]), redis.call('HGETALL', KEYS[2]), redis.call('HGETALL', KEYS[3])}
