-- Begin the table of a lease challenge, unless one was written on this run of Redis. See commands.py.
--
-- KEYS  1 {<group>}:challenge:table
-- Returns 1, or 0 when one was written.

local run = server()
local function found(field)
  return redis.call('HGET', KEYS[1], field)
end
if found('table') and found('server') == run then
  return 0
end
-- With the new tag, a write is refused that is based on an older reading: from before a loss, or of
-- a start that has failed meanwhile. All else stays. Members remember `begun`, so they notice a loss
-- after which others have begun another table. `server` shows that last writes may be missing.
local time = redis.call('TIME')
local at = string.format('%d%06d', tonumber(time[1]), tonumber(time[2]))
local count = tonumber(string.match(found('tag') or '', ':(%d+)$') or '-1') + 1
-- On a server that is full, too: see write.lua.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], 'tag', string.format('%s:%d', at, count),
  'begun', found('begun') or at, 'server', found('server') or run)
return 1
