-- Compensation: turns a cancelled batch into two others, so that one bad entry does not hold up the
-- rest.
-- KEYS: list of batches, ledger, batch, first new batch, second new batch.
-- ARGV: batch id, first new id, second new id, owner, then the fields of the first new batch.
-- Returns 1; 0 if the batch is no longer in the list or belongs to another owner by now.
for i = 1, 5 do
    local kind = redis.call('TYPE', KEYS[i]).ok
    if kind ~= 'none' and kind ~= 'hash' then
        return redis.error_reply('BUFFERTYPE ' .. KEYS[i] .. ' is a ' .. kind .. ', not a hash')
    end
end
for _, kind in ipairs({'moved', 'moved_batches', 'given_back'}) do
    local count = redis.call('HGET', KEYS[2], kind)
    if count and not string.match(count, '^%d+$') then
        return redis.error_reply('BUFFERLEDGER ' .. KEYS[2] .. ' has ' .. kind .. ' = ' .. count)
    end
end
local listed = redis.call('HGET', KEYS[1], ARGV[1])
if not listed then
    -- A repeat after a lost reply. It writes, so that a WAIT after it covers the first run.
    local again = redis.call('HGET', KEYS[1], ARGV[2])
    if again then
        redis.call('HSET', KEYS[1], ARGV[2], again)
    end
    return again and 1 or 0
end
if string.match(listed, '^%d+:(.*)$') ~= ARGV[4] then
    return 0
end
for i = 4, 5 do
    if redis.call('EXISTS', KEYS[i]) == 1 then
        return redis.error_reply('BUFFERUSED ' .. KEYS[i] .. ' exists and is not overwritten')
    end
end
local count, part = redis.call('HLEN', KEYS[3]), #ARGV - 4
if part < 1 or part >= count then
    return redis.error_reply('BUFFERPART ' .. part .. ' of ' .. count .. ' fields make no two batches')
end
local seen = {}
for i = 5, #ARGV do
    if seen[ARGV[i]] or redis.call('HEXISTS', KEYS[3], ARGV[i]) == 0 then
        return redis.error_reply('BUFFERPART no or no other field ' .. ARGV[i] .. ' in the batch')
    end
    seen[ARGV[i]] = true
end
for first = 5, #ARGV, 1000 do
    local fields, entries = {}, {}
    for i = first, math.min(first + 999, #ARGV) do
        fields[#fields + 1] = ARGV[i]
    end
    local values = redis.call('HMGET', KEYS[3], unpack(fields))
    for i, field in ipairs(fields) do
        entries[#entries + 1] = field
        entries[#entries + 1] = values[i]
    end
    redis.call('HSET', KEYS[4], unpack(entries))
    redis.call('HDEL', KEYS[3], unpack(fields))
end
redis.call('RENAMENX', KEYS[3], KEYS[5])
redis.call('PERSIST', KEYS[5])
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], ARGV[2], part .. ':' .. ARGV[4], ARGV[3], (count - part) .. ':' .. ARGV[4])
redis.call('HINCRBY', KEYS[2], 'given_back', count)
redis.call('HINCRBY', KEYS[2], 'moved', count)
redis.call('HINCRBY', KEYS[2], 'moved_batches', 2)
return 1
