-- Decisions and facts at one instant. See read() in commands.py. Writes nothing.
--
-- ARGV  1 the tag of a decision that is known; what has not changed since need not be read again
-- Returns {now, tag, 1 when all of the state is there and not only what has changed, fields and
-- texts of the state, changes, terms, members and reports, members and leases, run of Redis that the
-- last step read, run of Redis; empty for a user who may look, but not ask for it}.

return reading(ARGV[1] ~= '' and changed_since(ARGV[1]) or nil)
