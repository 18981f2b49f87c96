-- The table of a fixed lease challenge. Writes nothing. See challenge_commands.py.
--
-- KEYS  1 {<group>}:challenge:table   hash  tag: microseconds of the last write; table: JSON
-- Returns {now, tag, table}. Time is this server's.

local time = redis.call('TIME')
local found = redis.call('HMGET', KEYS[1], 'tag', 'table')
local at = string.format('%d%06d', tonumber(time[1]), tonumber(time[2]))
return {at, found[1] or '', found[2] or ''}
