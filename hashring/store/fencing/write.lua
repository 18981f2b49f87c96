-- Run commands unless a newer token has been seen for the resource.
--
-- KEYS  1 the resource's newest token   2... the keys the commands touch
-- ARGV  1 the writer's token   2 seconds to remember the token without writes, 0 for ever
--       3... the commands: for each how many words it has, then the words
-- Answer  {1, answer, answer...} or {0, newest token}.
--
-- Compared as text of equal length: a token has more digits than a Lua number is exact to in
-- arithmetic with fractions, and needs none.
local function padded(token)
  return string.rep('0', 20 - #token) .. token
end

local newest = redis.call('GET', KEYS[1])
if newest and (#newest > 20 or not string.find(newest, '^%d+$')) then
  return redis.error_reply('ERR what stands in ' .. KEYS[1] .. ' is no fencing token: nothing was written')
end
if newest and comes_after(padded(newest), padded(ARGV[1])) then
  return {0, newest}
end
local remember = {'SET', KEYS[1], ARGV[1]}
if tonumber(ARGV[2]) > 0 then
  remember[4], remember[5] = 'EX', ARGV[2]
end
-- A full Redis refuses the first write of a script if that may need memory, and takes any after one that
-- does not. So the token may have to wait for a command that frees some, as DEL does.
local refused = redis.pcall(unpack(remember)).err
if refused and not string.find(refused, 'OOM', 1, true) then
  redis.call(unpack(remember))
end
local answers = {1}
local at = 3
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  answers[#answers + 1] = redis.call(unpack(ARGV, at + 1, at + words))
  refused = refused and redis.pcall(unpack(remember)).err
  at = at + words + 1
end
if refused then
  redis.call(unpack(remember))
end
return answers
