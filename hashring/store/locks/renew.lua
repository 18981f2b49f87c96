-- Renew the locks that this session holds. Never takes one that has expired.
--
-- ARGV  3 session   4 node   5 when the history began that the node knows
--       6 the numbers (from 0) of the locks to put back if Redis lost them, with spaces between
--       7 ttl in milliseconds   8 the locks' tokens, with spaces between
--       9... for each lock that shall last otherwise its number and its ttl
-- Answer  the numbers of those that are not this session's any more, then those that another node
--         waits for: number, node, number, node..., then the numbers of those that are not there,
--         in a history that the node does not know: it beats, and asks again.
--
-- A lock that shall last otherwise may end before its holder releases it, and then nobody tells the
-- node that waits: that node is told now, and asks again how long it has to wait.
--
-- After Redis lost the locks, those that a node still holds by its own clock are put back, as long
-- as no lock may be taken. The node learnt of the loss first, and looked at its clock after that: so
-- the lock was its own when it was lost, and nobody can have taken it since. It puts back each once:
-- what is gone after that was taken away by hand.
local call, try, sub, find = redis.call, redis.pcall, string.sub, string.find
local ttl, holder = ARGV[7], ' ' .. ARGV[3] .. ' '
local other, to_put_back = {}, {}
for i = 9, #ARGV, 2 do
  other[tonumber(ARGV[i])] = ARGV[i + 1]
end
for number in string.gmatch(ARGV[6], '%d+') do
  to_put_back[tonumber(number)] = true
end
local time = call('TIME')
local held_off = held_off_for(ARGV[5], tonumber(time[1]) * 1000000 + tonumber(time[2]))
local known, put_back = held_off ~= nil, 0
local may_put_back = known and held_off > 0
local number, lost, wanted, unknown = 0, {}, {}, {}

for token in string.gmatch(ARGV[8], '%d+') do
  local lock, mine = KEYS[number + 4], token .. holder
  local value = try('GET', lock)
  if type(value) == 'string' and sub(value, 1, #mine) == mine then
    call('PEXPIRE', lock, other[number] or ttl)
    local feed = find(value, '\n', #mine, true)
    if feed and feed < #value then
      wanted[#wanted + 1] = number
      wanted[#wanted + 1] = sub(value, feed + 1)
      if other[number] then
        -- It waits for the end that it was told when it asked.
        tell(sub(value, feed + 1), 'freed', lock)
      end
    end
  elseif not value and may_put_back and to_put_back[number] then
    -- A full Redis refuses a script's first write if that may need memory: then one that never does.
    call('DEL', lock)
    call('SET', lock, mine .. ARGV[4], 'PX', other[number] or ttl)
    put_back = math.max(put_back, tonumber(token))
  elseif not value and not known then
    unknown[#unknown + 1] = number
  else
    lost[#lost + 1] = number
  end
  number = number + 1
end
if put_back > 0 then
  -- Tokens go on growing from the greatest that was ever given.
  local last = tonumber(string.match(call('GET', KEYS[1]) or '', '^%d+$') or 0)
  if last < put_back then
    call('SET', KEYS[1], string.format('%.0f', put_back))
  end
end
return {lost, wanted, unknown}
