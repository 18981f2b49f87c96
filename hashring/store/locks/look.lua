-- Who holds these locks. Writes nothing.
--
-- ARGV  3 when the history began that the node knows; left out where nobody asks for it
-- Answer  for each lock {token, session, node, waiter, milliseconds left, 1 when the ring has that
--         history}, or {} when it is free.
local answers = {}
-- At whatever time: of the answer, only whether there is one is used.
local known = ARGV[3] and held_off_for(ARGV[3], 0) and 1 or 0
for i = 4, #KEYS do
  local token, session, node, waiter = read(KEYS[i])
  answers[i - 3] = token
    and {token, session, node, waiter, redis.call('PTTL', KEYS[i]), known} or {}
end
return answers
