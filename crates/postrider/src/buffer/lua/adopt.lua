-- Takes a batch over from an owner that is gone, and returns its fields.
-- KEYS: list of batches, batch. ARGV: batch id, current owner, new owner.
-- Returns 'taken' if the batch belongs to another owner by now, 'done' if it is no longer in the
-- list, 'lost' if it is in the list but its key is gone. The new owner may own it already.
for i = 1, 2 do
    local kind = redis.call('TYPE', KEYS[i]).ok
    if kind ~= 'none' and kind ~= 'hash' then
        return redis.error_reply('BUFFERTYPE ' .. KEYS[i] .. ' is a ' .. kind .. ', not a hash')
    end
end
local listed = redis.call('HGET', KEYS[1], ARGV[1])
if not listed then
    return 'done'
end
local count, owner = string.match(listed, '^(%d+):(.*)$')
if owner ~= ARGV[2] and owner ~= ARGV[3] then
    return 'taken'
end
redis.call('HSET', KEYS[1], ARGV[1], count .. ':' .. ARGV[3])
if redis.call('EXISTS', KEYS[2]) == 0 then
    return 'lost'
end
return redis.call('HGETALL', KEYS[2])
