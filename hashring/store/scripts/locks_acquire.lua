-- Take those of the locks that are free, up to a number, and wait for others that are not.
--
-- ARGV  3 node   4 session   5 ttl in milliseconds   6 how many to take at most
-- Answer  for each lock {token} when it is this session's now, {holder, milliseconds left} when
--         it is another's, {} when it was free but too many.
--
-- A token is greater than all before it, on this key and on every other: it counts up, and never
-- falls behind this server's time in microseconds, so that it goes on growing even when the
-- counter was lost with a failover or a restart without persistence.
local node, session, ttl, room = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
local first = last

local answers, others = {}, {}
for i = 2, #KEYS do
  local token, holder_session, holder, waiter, value = read(KEYS[i])
  if token and holder_session == session then
    -- The answer to an earlier call was lost.
    redis.call('PEXPIRE', KEYS[i], ttl)
    answers[i - 1] = {token}
    room = room - 1
  elseif token then
    answers[i - 1] = {holder, redis.call('PTTL', KEYS[i])}
    if waiter ~= node then
      others[#others + 1] = {KEYS[i], holder, value}
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
for i = 1, math.min(room, #others) do
  local lock, holder, value = unpack(others[i])
  redis.call('SET', lock, string.match(value, '^[^\n]*') .. '\n' .. node, 'KEEPTTL')
  tell(holder, 'wanted:' .. node, lock)
end
return answers
