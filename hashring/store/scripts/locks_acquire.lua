-- Take those of the locks that are free, up to a number, and wait for others that are not.
--
-- ARGV  3 node   4 session   5 ttl in milliseconds   6 how many to take and wait for at most
--       7 how many of the locks, the first ones, to wait for when another session has them
-- Answer  for each lock {token} when it is this session's now, {holder, milliseconds left} when
--         it is another's, {holder, milliseconds left, 1} when this node waits for it as well,
--         {} when it would have been one too many, and is free.
--
-- A token is greater than all before it, on this key and on every other: it counts up, and never
-- falls behind this server's time in microseconds, so that it goes on growing even when the
-- counter was lost with a failover or a restart without persistence.
local node, session, ttl, room = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- More digits than time has were not written here, and Lua could not count up from them.
local known = string.match(redis.call('GET', KEYS[1]) or '', '^%d+$')
local last = known and #known <= 16 and tonumber(known) or 0
local first = last

local answers, others = {}, {}
for i = 2, #KEYS do
  local token, holder_session, holder, waiter, value = read(KEYS[i])
  if token and holder_session == session and room > 0 then
    -- The answer to an earlier call was lost.
    redis.call('PEXPIRE', KEYS[i], ttl)
    answers[i - 1] = {token}
    room = room - 1
  elseif token and holder_session == session then
    -- The same, and now there is no place for it.
    redis.call('DEL', KEYS[i])
    answers[i - 1] = {}
    if waiter ~= '' then
      tell(waiter, 'freed', KEYS[i])
    end
  elseif token then
    local left = redis.call('PTTL', KEYS[i])
    -- What never expires is looked at again all the same, some day.
    answers[i - 1] = {holder, left < 0 and tonumber(ttl) or left}
    if value and i - 1 <= tonumber(ARGV[7]) then
      others[#others + 1] = {i, holder, waiter, value}
    end
  elseif room > 0 then
    last = math.max(last + 1, now)
    token = string.format('%.0f', last)
    redis.call('SET', KEYS[i], token .. ' ' .. session .. ' ' .. node, 'PX', ttl)
    answers[i - 1] = {token}
    room = room - 1
  else
    answers[i - 1] = {}
  end
end
if last > first then
  redis.call('SET', KEYS[1], string.format('%.0f', last))
end

-- Wait for no more than could be taken.
for n = 1, math.min(room, #others) do
  local i, holder, waiter, value = unpack(others[n])
  answers[i - 1][3] = 1
  if waiter ~= node then
    redis.call('SET', KEYS[i], string.match(value, '^[^\n]*') .. '\n' .. node, 'KEEPTTL')
    tell(holder, 'wanted:' .. node, KEYS[i])
  end
end
return answers
