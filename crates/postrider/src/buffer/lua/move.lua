-- Moves up to N fields of the buffer into a batch, and returns them.
-- KEYS: buffer, list of batches, ledger, batch. ARGV: batch id, owner, N.
-- A repeat after a lost reply changes nothing and returns the same; it writes, so that a WAIT after
-- it covers the earlier writes.
for i = 1, 4 do
    local kind = redis.call('TYPE', KEYS[i]).ok
    if kind ~= 'none' and kind ~= 'hash' then
        return redis.error_reply('BUFFERTYPE ' .. KEYS[i] .. ' is a ' .. kind .. ', not a hash')
    end
end
for _, kind in ipairs({'moved', 'moved_batches'}) do
    local count = redis.call('HGET', KEYS[3], kind)
    if count and not string.match(count, '^%d+$') then
        return redis.error_reply('BUFFERLEDGER ' .. KEYS[3] .. ' has ' .. kind .. ' = ' .. count)
    end
end
local listed = redis.call('HGET', KEYS[2], ARGV[1])
if listed then
    redis.call('HSET', KEYS[2], ARGV[1], listed)
    return redis.call('HGETALL', KEYS[4])
end
if redis.call('EXISTS', KEYS[4]) == 1 then
    return redis.error_reply('BUFFERUSED ' .. KEYS[4] .. ' exists and is not overwritten')
end
local count, limit = redis.call('HLEN', KEYS[1]), tonumber(ARGV[3])
if count == 0 then
    return {}
end
local moved
if count <= limit then
    redis.call('RENAMENX', KEYS[1], KEYS[4])
    -- A program may have set a time to live on the buffer; the batch must live until it is saved.
    redis.call('PERSIST', KEYS[4])
    moved = redis.call('HGETALL', KEYS[4])
else
    count = limit
    moved = redis.call('HRANDFIELD', KEYS[1], limit, 'WITHVALUES')
    -- In chunks, because Lua's stack holds only some thousand arguments.
    for first = 1, #moved, 1000 do
        local last = math.min(first + 999, #moved)
        redis.call('HSET', KEYS[4], unpack(moved, first, last))
        local fields = {}
        for i = first, last, 2 do
            fields[#fields + 1] = moved[i]
        end
        redis.call('HDEL', KEYS[1], unpack(fields))
    end
end
redis.call('HSET', KEYS[2], ARGV[1], count .. ':' .. ARGV[2])
redis.call('HINCRBY', KEYS[3], 'moved', count)
redis.call('HINCRBY', KEYS[3], 'moved_batches', 1)
return moved
