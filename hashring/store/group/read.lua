-- Decisions and facts at one instant. See read() in commands.py. Writes nothing.
--
-- ARGV  1 the tag of a decision that is known; what has not changed since need not be read again
-- Returns {now, tag, 1 when all of the state is there and not only what has changed, fields and
-- texts of the state, changes, terms, members and reports, members and leases, run of Redis that the
-- last step read, run of Redis; empty for a user who may look, but not ask for it}.

local _, tag = generation()
local known, run = pcall(server)

-- The parts of the state that changed since a decision; nil when that is not known any more.
local function changed_since(wanted)
  local names, found, at = {}, {}, tag
  for _ = 1, KEPT do
    if at == wanted then
      return names
    end
    local text = redis.call('HGET', KEYS[1], slot(at)) or ''
    local this, before, parts = string.match(text, '^(%S+) (%S+) (.*)$')
    if this ~= at or parts == '*' then
      return nil
    end
    for name in string.gmatch(parts, '%S+') do
      if not found[name] then
        found[name] = true
        names[#names + 1] = name
      end
    end
    at = before
  end
  return nil
end

-- All of the state, without what is known of each decision.
local function whole()
  local found, all = {}, redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) == '=' then
      found[#found + 1] = all[i]
      found[#found + 1] = all[i + 1]
    end
  end
  return found
end

local names = ARGV[1] ~= '' and changed_since(ARGV[1]) or nil
local fields = {}
for _, name in ipairs(names or {}) do
  fields[#fields + 1] = '=' .. name
  fields[#fields + 1] = redis.call('HGET', KEYS[1], '=' .. name) or ''
end
return {
  at,
  tag,
  names and 0 or 1,
  names and fields or whole(),
  count('changes'),
  redis.call('HGET', KEYS[1], 'terms') or '',
  redis.call('HGETALL', KEYS[2]),
  redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'),
  redis.call('HGET', KEYS[1], 'server') or '',
  known and run or '',
}
