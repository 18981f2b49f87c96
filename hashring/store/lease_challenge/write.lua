-- Write the table of a lease challenge, if nobody was faster. See commands.py.
--
-- KEYS  1 {<group>}:challenge:table  2 {<group>}:challenge:told, the channel
-- ARGV  1 the tag it is based on  2 table  3 message; empty for none
--       4 the run of Redis that it was read from: another may have lost the last writes of that one
-- Returns 1, or 0 when another was faster.

local tag = redis.call('HGET', KEYS[1], 'tag') or ''
if tag ~= ARGV[1] or server() ~= ARGV[4] then
  return 0
end
-- A server that is full refuses a script's first write if it takes memory. A lease that stands needs no
-- more of it.
redis.call('HDEL', KEYS[1], '')
-- The time for those who look, a count for two writes in one microsecond.
local time = redis.call('TIME')
local count = tonumber(string.match(tag, ':(%d+)$') or '0') + 1
local at = string.format('%d%06d:%d', tonumber(time[1]), tonumber(time[2]), count)
redis.call('HSET', KEYS[1], 'tag', at, 'table', ARGV[2], 'server', ARGV[4])
if ARGV[3] ~= '' then
  redis.call('PUBLISH', KEYS[2], ARGV[3])
end
return 1
