-- Renew the locks that this session holds. Never takes one that has expired.
--
-- ARGV  3 session   4 ttl in milliseconds   5 the locks' tokens, with spaces between
--       6... for each lock that shall last otherwise its number (from 0) and its ttl
-- Answer  the numbers (from 0) of those that are not this session's any more, then those that
--         another node waits for: number, node, number, node...
local call, try, sub, find = redis.call, redis.pcall, string.sub, string.find
local ttl, holder = ARGV[4], ' ' .. ARGV[3] .. ' '
local other = {}
for i = 6, #ARGV, 2 do
  other[tonumber(ARGV[i])] = ARGV[i + 1]
end
local number, lost, wanted = 0, {}, {}
for token in string.gmatch(ARGV[5], '%d+') do
  local lock, mine = KEYS[number + 2], token .. holder
  local value = try('GET', lock)
  if type(value) == 'string' and sub(value, 1, #mine) == mine then
    call('PEXPIRE', lock, other[number] or ttl)
    local feed = find(value, '\n', #mine, true)
    if feed and feed < #value then
      wanted[#wanted + 1] = number
      wanted[#wanted + 1] = sub(value, feed + 1)
    end
  else
    lost[#lost + 1] = number
  end
  number = number + 1
end
return {lost, wanted}
