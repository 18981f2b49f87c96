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
--   7  {<ring>}:points   ZSET     the members of nodes with room, scored by their point; by -1 those
--                                 that no reader counts
--   8  {<ring>}:full-points  ZSET the same of nodes that are full
--   9  {<ring>}:places   hash     node -> the points of its members, with spaces between
--  10  {<ring>}:orders   hash     node -> JSON of what was ordered about it
--  11  {<ring>}:drained  ZSET     the nodes that beat and have no member, by order; scored like members
--  12  {<ring>}:ended    ZSET     sessions that have ended, scored by when they are forgotten
-- The channel has the name of KEYS[1]; a node's own channel is {<ring>}:to:<node>.
--
-- KEYS 7 and 8 together are an index of KEYS[1]: they have the same members. A ring in the form of
-- redis-hashring has none, since its nodes would not keep it.
--
-- Time is this server's; no client's clock is ever used.

local SESSION = 16
local AWAY = string.rep('-', SESSION) -- the session of a node that stopped to come back
local FORGET_AFTER = 86400 -- seconds a named node's points are remembered after it went
local FORGET_ABOVE = 256   -- names remembered before the old ones are looked for
local FORGET_EVERY = 3600  -- seconds between two such looks at all names, however many leave
local END_KEPT = 3600      -- seconds; the network gives up sooner on what is on its way
local OVER = 'its time was up'
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

-- The session that holds a name, from the name's entry; '' for an entry not written here, and for
-- the entry of a node that stopped to come back.
local function holder_of(entry)
  local session = string.match(entry or '', '^([%w_-]+){') or ''
  return #session == SESSION and session ~= AWAY and session or ''
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

local RING_SIZE = 4294967296

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

local function take_off_index(members)
  in_parts('ZREM', KEYS[7], members)
  in_parts('ZREM', KEYS[8], members)
end

local function put_on_index(members, full)
  local scored = {}
  for _, member in ipairs(members) do
    scored[#scored + 1] = point_of(member)
    scored[#scored + 1] = member
  end
  in_parts('ZREM', full and KEYS[7] or KEYS[8], members)
  in_parts('ZADD', full and KEYS[8] or KEYS[7], scored)
end

local function decimal(number)
  return string.format('%.0f', number)
end

-- The point of a member of the index; nil for one that is no replica, which somebody else wrote.
local function place_of(member)
  return tonumber(string.match(member, '^(%d+):.+:[^:]+$'))
end

-- How far it is from one point to another, around the ring; all of it to the point itself.
local function distance(from, to)
  local far = (to - from) % RING_SIZE
  return far == 0 and RING_SIZE or far
end

-- The replicas on an index at `point`.
local function at_point(index, point)
  local found = {}
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', index, decimal(point), decimal(point))) do
    if place_of(member) then
      found[#found + 1] = member
    end
  end
  return found
end

-- The next point on an index after `point`, as a distance from it, with a member there. The whole
-- ring when there is none but the point itself; nothing on an empty index.
local function ahead(index, point)
  for _, span in ipairs({{'(' .. decimal(point), '+inf'}, {'0', decimal(point)}}) do
    while true do
      local found = redis.call('ZRANGEBYSCORE', index, span[1], span[2], 'LIMIT', 0, 1)[1]
      local place = found and place_of(found)
      if place then
        return distance(point, place), found
      end
      if not found then
        break
      end
      redis.call('ZREM', index, found)
    end
  end
end

-- What follows a replica of a node, as distances from its point: to the end of its own range, and to
-- the end of what it may take keys in, which goes on over the ranges of full nodes. Both 0 for a
-- replica whose point another node owns. Third the member at the end of its own range.
local function reach_of(point, node)
  -- On a point that several nodes have, the one whose name comes last is the owner. Full nodes are
  -- passed over; this one is not, whether it is full or not.
  local owns, inherits = true, true
  for _, member in ipairs(at_point(KEYS[7], point)) do
    local other = node_of(member) or ''
    owns = owns and other <= node
    inherits = inherits and other <= node
  end
  for _, member in ipairs(at_point(KEYS[8], point)) do
    owns = owns and (node_of(member) or '') <= node
  end
  local room, with_room = ahead(KEYS[7], point)
  local full, with_full = ahead(KEYS[8], point)
  room, full = room or RING_SIZE, full or RING_SIZE
  local own = owns and math.min(room, full) or 0
  local last = with_room
  if full < room or not with_room then
    last = with_full
  end
  if redis.call('SISMEMBER', KEYS[6], node) == 1 then
    return own, own, last
  end
  return own, inherits and room or 0, last
end

-- The same as text, 'point own reach', of the member of a node; then the member at the end, and
-- whether the member itself was seen on the index.
-- Every heartbeat asks this of each of its members, so there is a short way: when nobody is full and
-- nobody else is on the point, one look at the index says it all.
local function range_text(member, node, nobody_full)
  local point = string.match(member, '^%d+')
  if nobody_full then
    local found = redis.call('ZRANGEBYSCORE', KEYS[7], point, '+inf', 'LIMIT', '0', '2')
    if found[1] == member then
      local last = found[2] or redis.call('ZRANGEBYSCORE', KEYS[7], '0', '+inf', 'LIMIT', 0, 1)[1]
      local place = place_of(last)
      if place and (last == member or place ~= tonumber(point)) then
        local own = decimal(distance(tonumber(point), place))
        return point .. ' ' .. own .. ' ' .. own, last, true
      end
    end
  end
  local own, reach, last = reach_of(tonumber(point), node)
  return point .. ' ' .. decimal(own) .. ' ' .. decimal(reach), last
end

-- Tell the nodes that know only their own ranges, and whose ranges end at these points or reach on
-- over them, what they have now. They find it out at their next heartbeat in any case.
--
-- `change` is what was announced; `own` the node that needs not be told; `gone` are nodes that are
-- told that it happened to them.
local function tell_neighbours(points, change, own, gone)
  if redis.call('ZCARD', KEYS[7]) + redis.call('ZCARD', KEYS[8]) == 0 and #gone == 0 then
    return
  end
  local concerned, order = {}, {}
  local function concern(member)
    local node, point = node_of(member), place_of(member)
    if not node or node == own then
      return
    end
    if concerned[node] == nil then
      -- Nodes that follow the ring hear of the change on its channel.
      local entry = redis.call('HGET', KEYS[3], node)
      concerned[node] = entry and string.find(entry, '"ranges":', 1, true) and {} or false
      if concerned[node] then
        order[#order + 1] = node
      end
    end
    if not concerned[node] then
      return
    end
    concerned[node][point] = member
  end
  local nobody_full = redis.call('ZCARD', KEYS[8]) == 0
  local indexes = nobody_full and {KEYS[7]} or {KEYS[7], KEYS[8]}
  for _, point in ipairs(points) do
    for _, index in ipairs(indexes) do
      -- As a rule there is one member on the point, or none, and one on the point before.
      local found = redis.call('ZREVRANGEBYSCORE', index, decimal(point), '0', 'LIMIT', 0, 3)
      local before, certain
      for _, member in ipairs(found) do
        local place = place_of(member) or point
        if place < point and not before then
          before = place
        elseif place < point and place < before then
          certain = true
          break
        end
        concern(member)
      end
      if not before then
        -- None below the point, or many on it.
        for _, member in ipairs(at_point(index, point)) do
          concern(member)
        end
        found = redis.call('ZREVRANGEBYSCORE', index, '(' .. decimal(point), '0', 'LIMIT', 0, 1)
        if #found == 0 then
          found = redis.call('ZREVRANGEBYSCORE', index, '+inf', '0', 'LIMIT', 0, 1)
        end
        before = found[1] and place_of(found[1])
      end
      if before and not certain then
        for _, member in ipairs(at_point(index, before)) do
          concern(member)
        end
      end
    end
  end
  change.points = nil
  local head = 'ranges\n' .. string.sub(cjson.encode(change), 1, -2) .. ',"ranges":"'
  local channel = string.sub(KEYS[7], 1, -7) .. 'to:'
  for _, node in ipairs(order) do
    local ranges, ends = {}, {}
    for point in pairs(concerned[node]) do
      ends[#ends + 1] = point
    end
    table.sort(ends)
    for i, point in ipairs(ends) do
      ranges[i] = range_text(concerned[node][point], node, nobody_full)
    end
    redis.call('PUBLISH', channel .. node, head .. table.concat(ranges, ',') .. '"}')
  end
  for _, node in ipairs(gone) do
    if not concerned[node] then
      redis.call('PUBLISH', channel .. node, head .. '"}')
    end
  end
end


-- Remember where a named node was, so that a restart under the name goes back there.
local function remember(node, points)
  redis.call('HSET', KEYS[5], node, cjson.encode({points = points, at = time[1]}))
  redis.call('EXPIRE', KEYS[5], FORGET_AFTER)
  if redis.call('HLEN', KEYS[5]) <= FORGET_ABOVE then
    return
  end
  -- No node has an empty name: there stands when all names were looked at.
  local looked = tonumber(redis.call('HGET', KEYS[5], '') or '')
  if looked and looked <= now and now < looked + FORGET_EVERY then
    return
  end
  local all = redis.call('HGETALL', KEYS[5])
  for i = 1, #all, 2 do
    local ok, memory = pcall(cjson.decode, all[i + 1])
    -- What was not written here has no time, and is the oldest of all.
    local left = ok and type(memory) == 'table' and tonumber(memory.at) or 0
    if not (left >= tonumber(time[1]) - FORGET_AFTER) then
      redis.call('HDEL', KEYS[5], all[i])
    end
  end
  redis.call('HSET', KEYS[5], '', time[1])
end

-- A session has ended. A heartbeat of it that was long on its way changes nothing any more.
local function end_session(session)
  local away = redis.call('ZRANGEBYSCORE', KEYS[12], '-inf', seconds(now), 'LIMIT', 0, 100)
  away[#away + 1] = session
  -- Whatever goes with it, a full Redis takes the rest once the script has begun to write.
  in_parts('ZREM', KEYS[12], away)
  redis.call('ZADD', KEYS[12], seconds(now + END_KEPT), session)
  redis.call('EXPIRE', KEYS[12], END_KEPT)
end

local function has_ended(session)
  local till = redis.call('ZSCORE', KEYS[12], session)
  return till and tonumber(till) > now
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

-- What was ordered about a node; an empty table when nothing was, or nothing that was written here.
local function orders_of(node)
  local ok, orders = pcall(cjson.decode, redis.call('HGET', KEYS[10], node) or '')
  return ok and type(orders) == 'table' and orders or {}
end

-- The order to drain that stands about a node whose name this session holds; else why the one that
-- there is does not stand any more.
local function drain_of(node, session)
  local drain = orders_of(node).drain
  if type(drain) ~= 'table' then
    return nil
  end
  if drain.ends and not (tonumber(drain.ends) and tonumber(drain.ends) > tonumber(at)) then
    return nil, OVER
  end
  if drain.session and drain.session ~= session then
    return nil, 'another process has the name'
  end
  return drain
end

-- The session that an order is about. A made-up name may be another process' tomorrow, so an order
-- is about the one that has it now; nil for a node with a name of its own, and when nobody knows.
local function made_up_for(entry)
  local holder = holder_of(entry)
  return holder ~= '' and told_of(entry).named ~= true and holder or nil
end

-- The order about the weight of a node whose name this session holds, if one stands.
local function weight_of(node, session)
  local weight = orders_of(node).weight
  if type(weight) ~= 'table' or type(weight.weight) ~= 'string' or type(weight.by) ~= 'string'
    or type(weight.since) ~= 'string' or not string.find(weight.since, '^%d+$')
    or not is_text(weight.by) or weight.session and weight.session ~= session then
    return nil
  end
  return {weight = weight.weight, by = weight.by, since = weight.since, session = weight.session}
end

-- Write an order about a node, 'drain' or 'weight', nil to lift it.
local function write_order(node, kind, order)
  local orders = orders_of(node)
  orders[kind] = order
  local ok, written = pcall(cjson.encode, orders)
  if not ok then
    -- Somebody wrote there what JSON cannot say, such as 1e999.
    orders = {[kind] = order}
    written = cjson.encode(orders)
  end
  if next(orders) then
    redis.call('HSET', KEYS[10], node, written)
  else
    redis.call('HDEL', KEYS[10], node)
  end
end

-- Whether a node whose name this session holds is to drain. What does not stand any more is lifted.
local function is_to_drain(node, session, history)
  local drain, stale = drain_of(node, session)
  if stale then
    write_order(node, 'drain', nil)
    log(history, 'kind', 'undrain', 'by', node, 'node', node, 'reason', stale)
  end
  return drain ~= nil
end

-- Have a node beat at once, since an order about it changed. It beats in any case, later.
local function call_node(node)
  redis.call('PUBLISH', string.sub(KEYS[7], 1, -7) .. 'to:' .. node, 'order')
end

-- Forget the drained nodes that did not beat since `horizon`. The orders about them stand.
local function sweep_drained(horizon)
  local gone = redis.call('ZRANGEBYSCORE', KEYS[11], '-inf', '(' .. seconds(horizon), 'LIMIT', 0, 1000)
  for _, node in ipairs(gone) do
    redis.call('ZREM', KEYS[11], node)
    if not is_on_ring(told_of(redis.call('HGET', KEYS[3], node))) then
      redis.call('HDEL', KEYS[3], node)
    end
  end
end

-- Take away what expired before `horizon`; returns how many members went.
-- 1000 at a time keeps the arguments of one ZREM within Lua's stack.
local function sweep(horizon, by, history)
  local swept, nodes, points, since, ends = 0, {}, {}, nil, {}
  sweep_drained(horizon)
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
        ends[#ends + 1] = point_of(expired[i])
        since = since or seconds(tonumber(expired[i + 1]))
      end
    end
    redis.call('ZREM', KEYS[1], unpack(members))
    take_off_index(members)
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
      redis.call('HDEL', KEYS[9], node)
      redis.call('SREM', KEYS[6], node)
    end
  end
  local change = {
    kind = 'expire',
    reason = 'expired',
    since = since,
    nodes = #gone > 0 and gone or nil,
  }
  announce(change, -swept, by, history)
  tell_neighbours(ends, change, by, gone)
  return swept
end

-- Make the index hold the members of the ring again, when somebody wrote to one of them alone.
--
-- A member that is not on the index was put there by nobody who keeps one. It stays, and counts, if
-- its node has an entry, and does not itself know all its ranges from the index: a node of a version
-- without. Any other is taken away. An index that was lost as a whole is made anew. Returns how many
-- members went.
local function reconcile(by, history)
  local count = redis.call('ZCARD', KEYS[1])
  local indexed = redis.call('ZCARD', KEYS[7]) + redis.call('ZCARD', KEYS[8])
  if count == indexed then
    return 0
  end
  local present, known = {}, {}
  local all = redis.call('ZRANGE', KEYS[1], 0, -1)
  for _, member in ipairs(all) do
    present[member] = true
  end
  for i = 7, 8 do
    local stale = {}
    for _, member in ipairs(redis.call('ZRANGE', KEYS[i], 0, -1)) do
      if not present[member] or known[member] then
        stale[#stale + 1] = member
      else
        known[member] = true
      end
    end
    in_parts('ZREM', KEYS[i], stale)
  end
  local entries, room, full, away, gone = {}, {}, {}, {}, {}
  for _, member in ipairs(all) do
    local node = not known[member] and node_of(member)
    if node and entries[node] == nil then
      entries[node] = redis.call('HGET', KEYS[3], node)
      if not entries[node] then
        gone[#gone + 1] = node
      end
    end
    if known[member] then
      -- It is where it should be.
    elseif not node then
      redis.call('ZADD', KEYS[7], -1, member)
    elseif entries[node] and (indexed == 0 or told_of(entries[node]).ranges == nil) then
      table.insert(redis.call('SISMEMBER', KEYS[6], node) == 1 and full or room, member)
    else
      away[#away + 1] = member
    end
  end
  put_on_index(room, false)
  put_on_index(full, true)
  if #away > 0 then
    in_parts('ZREM', KEYS[1], away)
    announce({kind = 'expire', reason = 'unvouched', nodes = #gone > 0 and gone or nil},
      -#away, by, history)
  end
  return #away
end
