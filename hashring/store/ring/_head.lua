-- What every script of the ring shares. Prepended to each of them.
--
-- KEYS of every script:
--   1  <ring>            ZSET     one member a replica, start:node:id
--   2  {<ring>}:epoch    string   "number tag" of the last change; "began until": Redis time at which
--                                 this history began, and up to which no lock may be taken
--   3  {<ring>}:nodes    hash     node -> 16 characters of session, then JSON of what it tells
--   4  {<ring>}:events   stream   history, capped
--   5  {<ring>}:left     hash     node -> JSON of the points a named node had when it went
--   6  {<ring>}:full     set      the nodes that hold as many keys as they may
-- The channel has the name of KEYS[1].
--
-- Time is this server's; no client's clock is ever used.

local SESSION = 16
local FORGET_AFTER = 86400 -- seconds a named node's points are remembered after it went
local FORGET_ABOVE = 256   -- names remembered before the old ones are looked for
local LAST_EPOCH = 999999999999 -- more digits are read as garbage; after it comes 1

-- A script that fails midway is not rolled back: a key of the wrong type must fail it here.
redis.call('ZCARD', KEYS[1])
redis.call('GET', KEYS[2])
redis.call('HLEN', KEYS[3])
redis.call('XLEN', KEYS[4])
redis.call('HLEN', KEYS[5])
redis.call('SCARD', KEYS[6])

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

local function point_of(member)
  return tonumber(string.match(member, '^(%d+):'))
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

-- The session that holds a name, from the name's entry; '' for an entry not written here.
local function holder_of(entry)
  local session = string.match(entry or '', '^([%w_-]+){') or ''
  return #session == SESSION and session or ''
end

-- Add an entry to the history. A stream that somebody gave the last possible id takes no more: it
-- is begun anew, or no change of the ring could be made whole from then on.
local function log(history, ...)
  local answer = redis.pcall('XADD', KEYS[4], 'MAXLEN', '~', history, '*', ...)
  if type(answer) == 'table' and answer.err then
    if string.find(answer.err, 'exhausted', 1, true) then
      redis.call('DEL', KEYS[4])
    end
    redis.call('XADD', KEYS[4], 'MAXLEN', '~', history, '*', ...)
  end
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

-- Remember where a named node was, so that a restart under the name goes back there.
local function remember(node, points)
  redis.call('HSET', KEYS[5], node, cjson.encode({points = points, at = time[1]}))
  redis.call('EXPIRE', KEYS[5], FORGET_AFTER)
  if redis.call('HLEN', KEYS[5]) > FORGET_ABOVE then
    local all = redis.call('HGETALL', KEYS[5])
    for i = 1, #all, 2 do
      local ok, memory = pcall(cjson.decode, all[i + 1])
      -- What was not written here has no time, and is the oldest of all.
      local left = ok and type(memory) == 'table' and tonumber(memory.at) or 0
      if not (left >= tonumber(time[1]) - FORGET_AFTER) then
        redis.call('HDEL', KEYS[5], all[i])
      end
    end
  end
end

-- What a node tells of itself, from its entry; nothing for an entry not written here.
local function told_of(entry)
  local ok, told = pcall(cjson.decode, string.sub(entry or '', SESSION + 1))
  return ok and type(told) == 'table' and told or {}
end

-- Whether a node's newest heartbeat still holds: the members of one expire together. Others of the
-- node, which a failover brought back or somebody put there, may expire while it lives.
local function is_on_ring(told)
  return type(told.anchor) == 'string' and redis.call('ZSCORE', KEYS[1], told.anchor)
end

-- Take away what expired before `horizon`; returns how many members went.
-- 1000 at a time keeps the arguments of one ZREM within Lua's stack.
local function sweep(horizon, by, history)
  local swept, nodes, points, since = 0, {}, {}, nil
  while true do
    local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. seconds(horizon),
      'WITHSCORES', 'LIMIT', 0, 1000)
    if #expired == 0 then
      break
    end
    local members = {}
    for i = 1, #expired, 2 do
      members[#members + 1] = expired[i]
      local node = node_of(expired[i])
      if node then
        if not points[node] then
          nodes[#nodes + 1] = node
          points[node] = {}
        end
        table.insert(points[node], point_of(expired[i]))
        since = since or seconds(tonumber(expired[i + 1]))
      end
    end
    redis.call('ZREM', KEYS[1], unpack(members))
    swept = swept + #members
  end
  if swept == 0 then
    return 0
  end
  local gone = {}
  for _, node in ipairs(nodes) do
    local told = told_of(redis.call('HGET', KEYS[3], node))
    if not is_on_ring(told) then
      gone[#gone + 1] = node
      if told.named == true then
        remember(node, points[node])
      end
      redis.call('HDEL', KEYS[3], node)
      redis.call('SREM', KEYS[6], node)
    end
  end
  announce({
    kind = 'expire',
    reason = 'expired',
    since = since,
    nodes = #gone > 0 and gone or nil,
  }, -swept, by, history)
  return swept
end
