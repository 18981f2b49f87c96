-- Leave. See leave() in commands.py.
--
-- ARGV  1 member  2 session; empty for any
-- Returns 1 when the member was there.

local session = record(ARGV[1])
if not session or (ARGV[2] ~= '' and session ~= ARGV[2]) then
  return 0
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
changed()
return 1
