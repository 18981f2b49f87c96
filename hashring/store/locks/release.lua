-- Let go of locks, and tell who waits for them.
--
-- ARGV  3 session   4... for each lock its token
-- Answer  how many were let go.
--
-- By token: a call that was long on its way finds the lock taken anew, under another token, and
-- leaves it alone.
local released = 0
for i = 4, #KEYS do
  local token, session, _, waiter = read(KEYS[i])
  if token == ARGV[i] and session == ARGV[3] then
    redis.call('DEL', KEYS[i])
    released = released + 1
    if waiter ~= '' then
      tell(waiter, 'freed', KEYS[i])
    end
  end
end
return released
