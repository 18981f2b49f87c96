-- Take those of the locks that are free.
--
-- ARGV  3 node   4 session   5 ttl in milliseconds
-- Answer  for each lock {token} when it is this session's now, else {holder, milliseconds left}.
--
-- A token is greater than all before it, on this key and on every other: it counts up, and never
-- falls behind this server's time in microseconds, so that it goes on growing even when the
-- counter was lost with a failover or a restart without persistence.
local node, session, ttl = ARGV[3], ARGV[4], ARGV[5]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
local first = last

local answers = {}
for i = 2, #KEYS do
  local token, holder_session, holder, waiter, value = read(KEYS[i])
  if not token then
    last = math.max(last + 1, now)
    token = string.format('%.0f', last)
    redis.call('SET', KEYS[i], token .. ' ' .. session .. ' ' .. node, 'PX', ttl)
    answers[i - 1] = {token}
  elseif holder_session == session then
    -- The answer to an earlier call was lost.
    redis.call('PEXPIRE', KEYS[i], ttl)
    answers[i - 1] = {token}
  else
    if waiter ~= node then
      local held = string.match(value, '^[^\n]*')
      redis.call('SET', KEYS[i], held .. '\n' .. node, 'KEEPTTL')
      tell(holder, 'wanted:' .. node, KEYS[i])
    end
    answers[i - 1] = {holder, redis.call('PTTL', KEYS[i])}
  end
end
if last > first then
  redis.call('SET', KEYS[1], string.format('%.0f', last))
end
return answers
