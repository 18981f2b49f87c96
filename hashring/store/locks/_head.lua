-- What every script about locks shares. Prepended to each of them.
--
-- KEYS  1 {<ring>}:token, the last fencing token   2 {<ring>}:epoch, see ring/_head.lua
--       3 {<ring>}:lock-server, which server's data these are, see ring/beat.lua
--       4... locks, {<ring>}:lock:<key>
-- A lock is a string with a TTL: "token session node", then, behind a line feed, the node that
-- waits for it, if one does. A name holds no line feed.
-- Node channels are {<ring>}:to:<node>; ARGV[1] is their part before the name, ARGV[2] the length
-- of a lock's name before its key.

-- Token, session, node, waiter, and the value; nothing for a lock that is free. What was not
-- written here stands until it expires: it has no session, so nobody renews or changes it.
local function read(lock)
  local value = redis.pcall('GET', lock)
  if not value then
    return nil
  end
  if type(value) == 'string' then
    local token, session, node, waiter = string.match(value, '^(%d+) (%x+) ([^\n]*)\n?([^\n]*)$')
    if token then
      return token, session, node, waiter, value
    end
  end
  return '0', '', '?', ''
end

local function tell(node, what, lock)
  redis.call('PUBLISH', ARGV[1] .. node, what .. '\n' .. string.sub(lock, ARGV[2] + 1))
end

-- For how many milliseconds from now (this server's time in microseconds) no lock may be taken; nil
-- if the ring has another history than one that began then, or is about to: Redis restarted, or
-- another server took over, perhaps with older data, and no heartbeat has noted it yet.
local function held_off_for(began, now)
  local value = redis.call('GET', KEYS[2]) or ''
  local known, till = string.match(value, '^%d+ %x+ (%d+) (%d+)$')
  if (known or '') ~= began or (known and redis.call('GET', KEYS[3]) ~= lineage()) then
    return nil
  end
  if not known then
    return 0
  end
  return math.max(0, math.ceil((hold_off_end(tonumber(known), tonumber(till), now) - now) / 1000))
end
