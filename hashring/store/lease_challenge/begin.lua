-- Begin the table of a lease challenge, if there is none. See commands.py.
--
-- KEYS  1 {<group>}:challenge:table

local time = redis.call('TIME')
-- Its tag tells this table from one of this name that was lost: what was read before that loss, or
-- in an empty Redis, is no base for a write.
if not redis.call('HGET', KEYS[1], 'tag') then
  local at = string.format('%d%06d:0', tonumber(time[1]), tonumber(time[2]))
  redis.call('HSET', KEYS[1], 'tag', at)
end
return 1
