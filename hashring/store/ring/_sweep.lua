-- What expired goes, and the index holds what the ring holds.

local ROUNDING = 0.001 -- seconds that a score may be higher than it should be
local LOOKED_AT = 32 -- members with the highest scores, of which one call sees whether any is too high
local MOST_CUT = 10000 -- members that one call looks at; the next one goes on
local MOST_SWEPT = 2000 -- members that one call takes away, or a few more

-- Cut scores from before the clock of this machine was set back.
--
-- No heartbeat writes a higher score than now and its node's ttl, so a higher one is from before, and
-- the member would not expire for as long as the clock was set back. Live nodes write theirs anew. One
-- whose node does not tell its ttl stays: too short a time could give away what it still owns. What is
-- no replica is nobody's.
local function cut_scores(lead, lag)
  local function latest_of(node)
    if lag > 0 then
      return now
    elseif not node then
      return lead > 0 and now + lead or math.huge
    end
    local ttl = told_of(redis.call('HGET', KEYS[3], node)).ttl
    return type(ttl) == 'number' and now + ttl or math.huge
  end
  -- Those of the highest scores that are too high, each after the score that it may have.
  local function too_high(key, count)
    local found = redis.call('ZREVRANGEBYSCORE', key, '+inf', '(' .. seconds(now + lead + ROUNDING),
      'WITHSCORES', 'LIMIT', 0, count)
    local known, cut = {}, {}
    for i = 1, #found, 2 do
      local node = found[i]
      if key == KEYS[1] then
        node = node_of(found[i])
      end
      local latest = known[node or ''] or latest_of(node)
      known[node or ''] = latest
      if tonumber(found[i + 1]) > latest + ROUNDING then
        cut[#cut + 1] = seconds(latest)
        cut[#cut + 1] = found[i]
      end
    end
    return cut
  end
  for _, key in ipairs(some_drained and {KEYS[1], KEYS[11]} or {KEYS[1]}) do
    -- Most are right, also where others have a longer ttl.
    if too_high(key, LOOKED_AT)[1] then
      begin_to_write()
      in_parts('ZADD', key, too_high(key, MOST_CUT))
    end
  end
end

-- Forget the drained nodes that did not beat since `horizon`. The orders about them stand.
local function sweep_drained(horizon)
  if not some_drained then
    return
  end
  local gone = redis.call('ZRANGEBYSCORE', KEYS[11], '-inf', '(' .. seconds(horizon), 'LIMIT', 0, 1000)
  for _, node in ipairs(gone) do
    redis.call('ZREM', KEYS[11], node)
    if not is_on_ring(told_of(redis.call('HGET', KEYS[3], node))) then
      redis.call('HDEL', KEYS[3], node)
    end
  end
end

-- Take away what expired before `horizon`; returns how many members went.
--
-- Of very many it takes the first, with all that one heartbeat wrote: whoever beats sees that more
-- have expired, and beats again. Thousands of nodes expire together when Redis was away.
local function sweep(horizon, by, history)
  local nodes, points, ends = {}, {}, {}
  sweep_drained(horizon)
  local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. seconds(horizon), 'LIMIT', 0,
    MOST_SWEPT)
  if #expired == MOST_SWEPT then
    local last = redis.call('ZSCORE', KEYS[1], expired[MOST_SWEPT])
    expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', last)
  end
  for _, member in ipairs(expired) do
    local node = node_of(member)
    if node then
      if not points[node] then
        nodes[#nodes + 1] = node
        points[node] = {}
      end
      table.insert(points[node], point_of(member))
      ends[#ends + 1] = point_of(member)
    end
  end
  local swept = in_parts('ZREM', KEYS[1], expired)
  take_off_index(expired)
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
    nodes = #gone > 0 and gone or nil,
  }
  announce(change, -swept, by, history)
  tell_neighbours(ends, change, by, gone)
  return swept
end

local function sweep_all(horizon, by, history)
  local swept = 0
  repeat
    local part = sweep(horizon, by, history)
    swept = swept + part
  until part == 0
  return swept
end

-- Make the index hold the members of the ring again, when somebody wrote to one of them alone.
--
-- A member that is not on the index was put there by nobody who keeps one. It stays, and counts, if
-- its node has an entry, and does not itself know all its ranges from the index: a node of a version
-- without. Any other is taken away. An index that was lost as a whole is made anew. Returns how many
-- members went.
local function reconcile(by, history, swept)
  local count, indexed = members_at_first, indexed_at_first
  if swept > 0 then
    count = redis.call('ZCARD', KEYS[1])
    indexed = redis.call('ZCARD', KEYS[7]) + redis.call('ZCARD', KEYS[8])
  end
  if count == indexed then
    return 0
  end
  begin_to_write()
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
