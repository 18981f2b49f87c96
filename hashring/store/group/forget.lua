-- Note that a group was stopped for good, and take away what its members left. A group of which a
-- member's lease stands is left as it is. See forget() in commands.py.
--
-- ARGV  1 tag the decision is based on  2 generation  3 phase  4 by whom  5 events
--       6 entries of history to keep
--       then for each field of the state that changes: name, text; empty for one that is no more
-- Returns 1; 0 when a lease stands, or another decision was written.

local _, tag = generation()
if tag ~= ARGV[1] or redis.call('ZCOUNT', KEYS[3], '(' .. text(now), '+inf') > 0 then
  keep_clock_of_group(tag)
  return 0
end
begin_to_write()
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
-- No step is due, and no member is at work on one or waits for it.
redis.call('HDEL', KEYS[1], 'due', 'claimed', 'decider', 'watched')
local fields = {}
for i = 7, #ARGV do
  fields[#fields + 1] = ARGV[i]
end
announce(write_state(ARGV[2], ARGV[3], fields), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6])
return 1
