-- What every script about locks shares. Prepended to each of them.
--
-- KEYS  1 {<ring>}:token, the last fencing token   2... locks, {<ring>}:lock:<key>
-- A lock is a string with a TTL: "token session node", then, behind a line feed, the node that
-- waits for it, if one does. A name holds no line feed.
-- Node channels are {<ring>}:to:<node>; ARGV[1] is their part before the name, ARGV[2] the length
-- of a lock's name before its key.

local function read(lock)
  local value = redis.call('GET', lock)
  if not value then
    return nil
  end
  local token, session, node, waiter = string.match(value, '^(%d+) (%x+) ([^\n]*)\n?([^\n]*)$')
  -- A value of another form was not written here; it stands until it expires.
  return token or '0', session or '', node or '?', waiter or '', value
end

local function tell(node, what, lock)
  redis.call('PUBLISH', ARGV[1] .. node, what .. '\n' .. string.sub(lock, ARGV[2] + 1))
end
