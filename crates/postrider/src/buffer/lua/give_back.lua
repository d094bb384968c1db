-- Compensation: adds the counts of a cancelled batch to the buffer again, and ends the batch.
-- KEYS: buffer, list of batches, ledger, batch. ARGV: batch id, owner.
-- Returns the number of entries; 0 if it is no longer in the list or belongs to another owner by
-- now.
for i = 1, 4 do
    local kind = redis.call('TYPE', KEYS[i]).ok
    if kind ~= 'none' and kind ~= 'hash' then
        return redis.error_reply('BUFFERTYPE ' .. KEYS[i] .. ' is a ' .. kind .. ', not a hash')
    end
end
local recorded = redis.call('HGET', KEYS[3], 'given_back')
if recorded and not string.match(recorded, '^%d+$') then
    return redis.error_reply('BUFFERLEDGER ' .. KEYS[3] .. ' has given_back = ' .. recorded)
end
local listed = redis.call('HGET', KEYS[2], ARGV[1])
local count, owner = string.match(listed or '', '^(%d+):(.*)$')
if owner ~= ARGV[2] then
    return 0
end
count = tonumber(count)
local batch = redis.call('HGETALL', KEYS[4])
if #batch == 0 then
    return redis.error_reply('BUFFERLOST ' .. KEYS[4] .. ' is gone')
end
-- Up to this value Lua adds without rounding, so a sum below it fits into 64 bits. Only texts that
-- HINCRBY accepts count as numbers: if 01 did, HINCRBY would fail below, after some counts were
-- added.
local exact = 4503599627370496
local function counts(text)
    return text == '0' or string.match(text, '^-?[1-9]%d*$')
end
local function small(text)
    return math.abs(tonumber(text)) < exact
end
local function refusal(code, field, value, given)
    return redis.error_reply(code .. ' field ' .. field .. ': ' .. given .. ' cannot be added to ' .. value)
end
for first = 1, #batch, 2000 do
    local fields = {}
    for i = first, math.min(first + 1999, #batch), 2 do
        fields[#fields + 1] = batch[i]
    end
    local present = redis.call('HMGET', KEYS[1], unpack(fields))
    for i, value in ipairs(present) do
        local given = batch[first + 2 * i - 1]
        -- A field that does not exist takes any text unchanged.
        if value and not (counts(value) and counts(given)) then
            return refusal('BUFFERCOUNT', fields[i], value, given)
        end
        if value and not (small(value) and small(given)) then
            return refusal('BUFFEROVERFLOW', fields[i], value, given)
        end
    end
end
if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('RENAMENX', KEYS[4], KEYS[1])
    redis.call('PERSIST', KEYS[1])
else
    for i = 1, #batch, 2 do
        if redis.call('HSETNX', KEYS[1], batch[i], batch[i + 1]) == 0 then
            redis.call('HINCRBY', KEYS[1], batch[i], batch[i + 1])
        end
    end
    redis.call('UNLINK', KEYS[4])
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HINCRBY', KEYS[3], 'given_back', count)
return count
