-- Join, or come back, as a new session. See join() in commands.py.
--
-- ARGV  1 member  2 session  3 ttl  4 report  5 the group's terms as the member has them
--       6 the process' own earlier session, or empty  7 seconds a claim lasts; see takes()
-- Returns {'taken', seconds left}, {'ended'} when this session has joined before and its lease has ended,
-- or {'ok', now, terms of the group, 1 when this member is to take the next step}.

local held_by, joined, report = record(ARGV[1])
local lease = lease_of(ARGV[1])
-- A lease whose entry is gone or cannot be read is a live member's. Its part of the decision names the
-- session, too: none but that process may have the name.
local holder = held_by or part(ARGV[1])
if lease > now and holder ~= ARGV[2] and holder ~= ARGV[6] then
  local _, tag = generation()
  keep_clock_of_group(tag)
  return {'taken', text(lease - now)}
end
-- A join whose answer was lost, sent again. Those who decide may have seen the end of the lease, and a
-- lease that has ended is never renewed: only another session may come back.
if held_by == ARGV[2] and lease <= now then
  local _, tag = generation()
  keep_clock_of_group(tag)
  return {'ended'}
end
if ARGV[6] ~= '' or lease > now then
  -- It was there before: Redis may have lost that, or the answer was lost.
  begin_to_write()
end
-- The first member's terms are the group's. A tag of its own tells this group from one of this name
-- that was lost or deleted: what was read of that one is no base for a decision.
for field, value in pairs({terms = ARGV[5], server = server(), tag = '0:' .. at}) do
  if not redis.call('HGET', KEYS[1], field) then
    redis.call('HSET', KEYS[1], field, value)
  end
end
-- A join whose answer was lost is sent again, when others may have given this session its part.
if held_by ~= ARGV[2] then
  joined = string.format('%d', count_one_more('joins'))
  redis.call('HDEL', KEYS[4], ARGV[1])
end
if renew(ARGV[1], tonumber(ARGV[3]), ARGV[4], held_by == ARGV[2] and report) then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. joined .. ' ' .. ARGV[4])
end
changed()
local due = takes(ARGV[1], tonumber(ARGV[7]), true) and 1 or 0
return {'ok', at, redis.call('HGET', KEYS[1], 'terms'), due}
