-- The table of a lease challenge. Writes nothing. See commands.py.
--
-- KEYS  1 {<group>}:challenge:table   hash  tag: microseconds of the last write; table: JSON;
--                                           server: the run of Redis that it was written on, see
--                                           ../_which_server.lua; begun: microseconds of its begin,
--                                           which no write changes
-- Returns {now, tag, table, run of Redis that it was written on, begun, run of Redis}. Time is this
-- server's.

local time = redis.call('TIME')
local at = string.format('%d%06d', tonumber(time[1]), tonumber(time[2]))
local found = {at}
for i, field in ipairs({'tag', 'table', 'server', 'begun'}) do
  found[i + 1] = redis.call('HGET', KEYS[1], field) or ''
end
found[6] = server()
return found
