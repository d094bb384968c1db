-- Ends a batch: deletes its key and counts its entries in the ledger.
-- KEYS: list of batches, ledger, batch. ARGV: batch id, how it ended.
-- Returns the number of entries; 0 if it is no longer in the list. A batch that was lost is not
-- counted as any outcome, so that the ledger shows the loss.
for i = 1, 3 do
    local kind = redis.call('TYPE', KEYS[i]).ok
    if kind ~= 'none' and kind ~= 'hash' then
        return redis.error_reply('BUFFERTYPE ' .. KEYS[i] .. ' is a ' .. kind .. ', not a hash')
    end
end
local recorded = redis.call('HGET', KEYS[2], ARGV[2])
if recorded and not string.match(recorded, '^%d+$') then
    return redis.error_reply('BUFFERLEDGER ' .. KEYS[2] .. ' has ' .. ARGV[2] .. ' = ' .. recorded)
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
