-- Ends a batch: its key is deleted and its entries are booked.
-- KEYS: list of batches, book, batch. ARGV: batch id, how it ended. Answers its entries; 0 if it is on
-- the list no more. A batch that was lost is booked as nothing, so that the books show it.
for i = 1, 3 do
    local kind = redis.call('TYPE', KEYS[i]).ok
    if kind ~= 'none' and kind ~= 'hash' then
        return redis.error_reply('BUFFERTYPE ' .. KEYS[i] .. ' is a ' .. kind .. ', not a hash')
    end
end
local booked = redis.call('HGET', KEYS[2], ARGV[2])
if booked and not string.match(booked, '^%d+$') then
    return redis.error_reply('BUFFERBOOK ' .. KEYS[2] .. ' has ' .. ARGV[2] .. ' = ' .. booked)
end
local listed = redis.call('HGET', KEYS[1], ARGV[1])
if not listed then
    return 0
end
local count = tonumber(string.match(listed, '^(%d+):'))
redis.call('UNLINK', KEYS[3])
redis.call('HDEL', KEYS[1], ARGV[1])
if ARGV[2] ~= 'lost' then
    redis.call('HINCRBY', KEYS[2], ARGV[2], count)
end
return count
