-- Adds to several counts: to all of them or to none. KEYS: buffer. ARGV: field and amount of each.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then
    return redis.error_reply('BUFFERTYPE ' .. KEYS[1] .. ' is a ' .. kind .. ', not a hash')
end
-- Up to this value Lua adds without rounding.
local exact, sums = 4503599627370496, {}
for i = 1, #ARGV, 2 do
    local field = ARGV[i]
    local count = sums[field] or redis.call('HGET', KEYS[1], field) or '0'
    -- Refuses what HINCRBY would refuse below, after other counts were added.
    if count ~= '0' and not string.match(count, '^-?[1-9]%d*$') then
        return redis.error_reply('BUFFERCOUNT field ' .. field .. ' holds ' .. count)
    end
    local sum = tonumber(count) + tonumber(ARGV[i + 1])
    if math.abs(sum) >= exact then
        return redis.error_reply('BUFFEROVERFLOW the count of field ' .. field)
    end
    sums[field] = string.format('%.0f', sum)
end
for i = 1, #ARGV, 2 do
    redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
end
return 1
