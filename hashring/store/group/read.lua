-- Decisions and facts at one instant. See read() in commands.py. Writes nothing.
--
-- ARGV  1 the tag of a decision that is known; its state need not be read again
-- Returns {now, tag, state, changes, terms, members and reports, members and leases, run of Redis
-- that the last step read, run of Redis; empty for a user who may look, but not ask for it}.

local _, tag = generation()
local known, run = pcall(server)
return {
  at,
  tag,
  tag ~= ARGV[1] and redis.call('HGET', KEYS[1], 'state') or '',
  count('changes'),
  redis.call('HGET', KEYS[1], 'terms') or '',
  redis.call('HGETALL', KEYS[2]),
  redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'),
  redis.call('HGET', KEYS[1], 'server') or '',
  known and run or '',
}
