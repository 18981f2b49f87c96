-- Begin the table of a lease challenge, if there is none. See commands.py.
--
-- KEYS  1 {<group>}:challenge:table

-- Its tag tells this table from one of this name that was lost: what was read before that loss, or
-- in an empty Redis, is no base for a write. Members remember `begun`, so they notice the loss when
-- others have begun another table since.
local run = server()
if not redis.call('HGET', KEYS[1], 'tag') then
  local time = redis.call('TIME')
  local at = string.format('%d%06d', tonumber(time[1]), tonumber(time[2]))
  redis.call('HSET', KEYS[1], 'tag', at .. ':0', 'begun', at, 'server', run)
end
return 1
