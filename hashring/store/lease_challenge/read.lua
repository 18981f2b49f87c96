-- The table of a fixed lease challenge. Writes nothing. See commands.py.
--
-- KEYS  1 {<group>}:challenge:table   hash  tag: microseconds of the last write; table: JSON
-- Returns {now, tag, table}. Time is this server's.

local time = redis.call('TIME')
local at = string.format('%d%06d', tonumber(time[1]), tonumber(time[2]))
return {at, redis.call('HGET', KEYS[1], 'tag') or '', redis.call('HGET', KEYS[1], 'table') or ''}
