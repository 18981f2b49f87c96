-- What every script of the ring begins with, and then the other files with a _ (lua_scripts.py).
--
-- KEYS of every script:
--   1  <ring>            ZSET     one member a replica, start:node:id
--   2  {<ring>}:epoch    string   "number tag" of the last change; "began until": Redis time at which
--                                 this history began, and up to which no lock may be taken
--   3  {<ring>}:nodes    hash     node -> 16 characters of session, then JSON of what it tells
--   4  {<ring>}:events   stream   history, capped
--   5  {<ring>}:left     hash     node -> JSON of the points a named node had when it went
--   6  {<ring>}:full     set      the nodes that hold as many keys as they may
--   7  {<ring>}:points   ZSET     the members of nodes with room, scored by their point; by -1 those
--                                 that no reader counts
--   8  {<ring>}:full-points  ZSET the same of nodes that are full
--   9  {<ring>}:places   hash     node -> the points of its members, with spaces between
--  10  {<ring>}:orders   hash     node -> JSON of what was ordered about it
--  11  {<ring>}:drained  ZSET     the nodes that beat and have no member, by order; scored like members
--  12  {<ring>}:ended    ZSET     sessions that have ended, scored by when they are forgotten
--  13  {<ring>}:lock-server  string  with a heartbeat of a node that locks keys: which server's data
--                                 these are, as the last such heartbeat found it, see ../_server.lua
--  14  {<ring>}:token    string   with the same: the last fencing token, see locks/_head.lua
-- The channel has the name of KEYS[1]; a node's own channel is {<ring>}:to:<node>.
--
-- KEYS 7 and 8 together are an index of KEYS[1]: they have the same members. A ring in the form of
-- redis-hashring has none, since its nodes would not keep it.
--
-- Time is this server's; no client's clock is ever used.

local LAST_EPOCH = 999999999999 -- more digits are read as garbage; after it comes 1

-- A script that fails midway is not rolled back: a key of the wrong type must fail it here.
redis.call('ZCARD', KEYS[1])
redis.call('GET', KEYS[2])
redis.call('HLEN', KEYS[3])
redis.call('XLEN', KEYS[4])
redis.call('HLEN', KEYS[5])
redis.call('SCARD', KEYS[6])
redis.call('ZCARD', KEYS[7])
redis.call('ZCARD', KEYS[8])
redis.call('HLEN', KEYS[9])
redis.call('HLEN', KEYS[10])
redis.call('ZCARD', KEYS[11])
redis.call('ZCARD', KEYS[12])

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local at = string.format('%d%06d', tonumber(time[1]), tonumber(time[2]))

local function seconds(value)
  return string.format('%.6f', value)
end

-- Whether a text is UTF-8: sequences that are become letters, and nothing else may be left.
local function is_text(text)
  if not string.find(text, '[\128-\255]') then
    return true
  end
  for _, sequence in ipairs({
    '[\194-\223][\128-\191]',
    '\224[\160-\191][\128-\191]',
    '[\225-\236\238\239][\128-\191][\128-\191]',
    '\237[\128-\159][\128-\191]',
    '\240[\144-\191][\128-\191][\128-\191]',
    '[\241-\243][\128-\191][\128-\191][\128-\191]',
    '\244[\128-\143][\128-\191][\128-\191]',
  }) do
    text = string.gsub(text, sequence, 'x')
  end
  return not string.find(text, '[\128-\255]')
end

-- The node of a replica; nil for a member that every reader skips as garbage. A message that
-- named the node of such a member would take the real one off the readers' rings.
local function node_of(member)
  local point, node = string.match(member, '^(%d+):(.+):[^:]+$')
  if not point or #point > 10 or tonumber(point) > 4294967295
    or (#point > 1 and string.sub(point, 1, 1) == '0') or not is_text(member) then
    return nil
  end
  return node
end

-- A digest of a node's members, as they are listed in the entry of one that is away.
local function sum_of(node, members)
  return redis.sha1hex(node .. ' ' .. table.concat(members, ' '))
end

local function point_of(member)
  return tonumber(string.match(member, '^(%d+):'))
end

-- The points of the members in some lists.
local function points_of(...)
  local points = {}
  for _, members in ipairs({...}) do
    for _, member in ipairs(members) do
      points[#points + 1] = point_of(member)
    end
  end
  return points
end

-- Number and tag of the last change, when its history began, and until when no lock may be taken:
-- the times in microseconds, '' and 0 when they are not known.
local function stamp()
  local epoch, tag, more = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (%x+)(.*)$')
  local began, till = string.match(more or '', '^ (%d+) (%d+)$')
  -- Anything else was not written here: begin a new history, which every reader notices.
  if not epoch or #epoch > 12 or not (began or more == '') then
    return 0, '', '', 0
  end
  return tonumber(epoch), tag, began or '', tonumber(till or 0)
end

local function set_stamp(epoch, tag, began, till)
  redis.call('SET', KEYS[2], string.format('%d %s %s %.0f', epoch, tag, began, till))
end

local function log(history, ...)
  log_in(KEYS[4], history, ...)
end

-- Number the change, tell the channel, and add it to the history.
-- `growth` is how many members it added to the ring.
local function announce(body, growth, by, history)
  local epoch, prev, began, till = stamp()
  body.v = 1
  body.epoch = epoch % LAST_EPOCH + 1
  body.prev = prev
  body.at = at
  body.members = redis.call('ZCARD', KEYS[1])
  body.was = body.members - growth
  body.tag = string.sub(redis.sha1hex(prev .. cjson.encode(body)), 1, 16)
  local message = cjson.encode(body)
  set_stamp(body.epoch, body.tag, began ~= '' and began or at, till)
  redis.call('PUBLISH', KEYS[1], message)
  log(history, 'kind', body.kind, 'epoch', body.epoch, 'by', by, 'data', message)
end

-- Call a command with many arguments; no more at a time than fit into Lua's stack.
local function in_parts(command, key, arguments)
  local count = 0
  for i = 1, #arguments, 1000 do
    count = count + redis.call(command, key, unpack(arguments, i, math.min(i + 999, #arguments)))
  end
  return count
end

-- Give members a score; returns how many of them were not on the ring before.
local function set_scores(members, score)
  local scored = {}
  for i, member in ipairs(members) do
    scored[2 * i - 1] = score
    scored[2 * i] = member
  end
  return in_parts('ZADD', KEYS[1], scored)
end
