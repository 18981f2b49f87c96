-- Take a lock away from its holder, and note it in the history.
--
-- KEYS  13 the lock
-- ARGV  1 what must stand in it: the token that was seen, 0 for what was not written here, or ''
--         for anything
--       2 by whom   3 how many events to keep   4 the key, for the history
--       5 the channels of nodes before their names
-- Answer  1 when it was taken away; 0 when it was free, or another token stood there.
local value = redis.pcall('GET', KEYS[13])
if not value then
  return 0
end
local token, waiter
if type(value) == 'string' then
  token, waiter = string.match(value, '^(%d+) %x+ [^\n]*\n?([^\n]*)$')
end
if ARGV[1] ~= '' and ARGV[1] ~= (token or '0') then
  return 0
end
redis.call('DEL', KEYS[13])
log(ARGV[3], 'kind', 'release', 'by', ARGV[2], 'keys', ARGV[4])
if waiter and waiter ~= '' then
  redis.call('PUBLISH', ARGV[5] .. waiter, 'freed\n' .. ARGV[4])
end
return 1
