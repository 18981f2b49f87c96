-- Let go of locks, and tell who waits for them.
--
-- ARGV  3 session ('' = whoever holds it)
-- Answer  how many were let go.
--
-- By session and not by token: a session that is not sure whether it got a lock lets go all the
-- same. One session holds a lock under one token at a time.
local released = 0
for i = 2, #KEYS do
  local token, session, _, waiter = read(KEYS[i])
  if token and (ARGV[3] == '' or session == ARGV[3]) then
    redis.call('DEL', KEYS[i])
    released = released + 1
    if waiter ~= '' then
      tell(waiter, 'freed', KEYS[i])
    end
  end
end
return released
