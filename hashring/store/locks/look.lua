-- Who holds these locks. Writes nothing.
--
-- Answer  for each lock {token, session, node, waiter, milliseconds left}, or {} when it is free.
local answers = {}
for i = 3, #KEYS do
  local token, session, node, waiter = read(KEYS[i])
  answers[i - 2] = token and {token, session, node, waiter, redis.call('PTTL', KEYS[i])} or {}
end
return answers
