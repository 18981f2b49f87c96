-- Who holds these locks. Writes nothing.
--
-- Answer  for each lock {token, session, node, waiter, milliseconds left, milliseconds since it was
--         taken, which tokens tell}, or {} when it is free.
local time, answers = redis.call('TIME'), {}
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
for i = 4, #KEYS do
  local token, session, node, waiter = read(KEYS[i])
  answers[i - 3] = token and {
    token, session, node, waiter, redis.call('PTTL', KEYS[i]),
    math.max(0, math.floor((now - tonumber(token)) / 1000)),
  } or {}
end
return answers
