-- A node's heartbeat: join or refresh, sweep what expired, say where the ring stands.
--
-- ARGV  1 node          2 session (16 characters)
--       3 flags: j join, s answer with the ring, f it holds as many keys as it may
--       4 the session that a join may take the name from, as it was seen; '' = from nobody
--       5 lead: a score is now + lead    6 lag: a member is dead when its score < now - lag
--       7 '=' and the tag the ring must have; '' = any
--       8 what the node tells of itself, JSON      9 how many events to keep
--       10 when the history began that the node knows; '' = it knows none
--       11 seconds that its locks last; 0 = it takes none
--       12 how many members to drop                13... those, then the node's own members
-- Answer  status, epoch, tag, tag before this call's own change, members, Redis time in
--         microseconds, seconds until the next member expires, how many were swept, when this
--         history began, seconds for which no lock may be taken,
--         then, when asked for, the ring's members as one text (JSON, which a client reads in a
--         fraction of the time that as many answers take), and the nodes that are full.
--         status: ok, taken (the name is in use by another session than the one seen), superseded
--         (by another session under this name), moved (the ring is not the one expected). Only ok
--         changed anything of the node.
local node, session, flags = ARGV[1], ARGV[2], ARGV[3]
local lead, lag, history = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[9]
local joining = string.find(flags, 'j', 1, true)

local swept = sweep(now - lag, node, history)
local _, before = stamp()

-- How many keys nobody serves, as a node tells it.
local function unserved(told)
  local ok, info = pcall(cjson.decode, told)
  local count = ok and type(info) == 'table' and info.unserved
  return type(count) == 'number' and count > 0 and count < 2^53 and math.floor(count) or 0
end

local status = 'ok'
local entry = redis.call('HGET', KEYS[3], node)
local holder = holder_of(entry)
local other = holder ~= '' and holder ~= session
if other and not joining then
  status = 'superseded'
elseif other and holder ~= ARGV[4] then
  status = 'taken'
elseif ARGV[7] ~= '' and ARGV[7] ~= '=' .. before then
  status = 'moved'
end

if status == 'ok' then
  local drop = tonumber(ARGV[12])
  local dropped = 0
  for i = 1, drop, 1000 do
    dropped = dropped
      + redis.call('ZREM', KEYS[1], unpack(ARGV, 12 + i, 12 + math.min(i + 999, drop)))
  end
  if not joining then
    -- A full Redis refuses ZADD, although new scores need no memory, unless the script has begun
    -- to write: so that it begins. No node has an empty name; a member, which is garbage, may.
    redis.call('SREM', KEYS[6], '')
  end
  local score = seconds(now + lead)
  local added = 0
  for i = 13 + drop, #ARGV, 500 do
    local scored = {}
    for j = i, math.min(i + 499, #ARGV) do
      scored[#scored + 1] = score
      scored[#scored + 1] = ARGV[j]
    end
    added = added + redis.call('ZADD', KEYS[1], unpack(scored))
  end
  local told = session .. ARGV[8]
  if entry ~= told then
    redis.call('HSET', KEYS[3], node, told)
    local count = unserved(ARGV[8])
    if (count > 0) ~= (entry and unserved(string.sub(entry, SESSION + 1)) > 0 or false) then
      log(history, 'kind', 'unserved', 'by', node, 'keys', count)
    end
  end
  -- A ring without a tag (its epoch was evicted, or deleted) gets one from the first heartbeat:
  -- two such times must not look the same to a node that slept from one to the other.
  if added > 0 or dropped > 0 or other or before == '' then
    local points = {}
    for i = 13 + drop, #ARGV do
      points[#points + 1] = point_of(ARGV[i])
    end
    local reason = 'return'
    if other then
      reason = 'restart'
    elseif joining then
      reason = entry and 'resize' or 'start'
    end
    announce({
      kind = 'join',
      nodes = {node},
      points = points,
      session = session,
      reason = reason,
    }, added - dropped, node, history)
    redis.call('HDEL', KEYS[5], node)
  end
end

if status == 'ok' then
  local full = string.find(flags, 'f', 1, true) ~= nil
  if full ~= (redis.call('SISMEMBER', KEYS[6], node) == 1) then
    redis.call(full and 'SADD' or 'SREM', KEYS[6], node)
    announce({kind = full and 'full' or 'room', nodes = {node}}, 0, node, history)
  end
end

-- Redis lost what this node knew, and with it the locks. A node may still believe in one for as long
-- as locks last: until then nobody takes any, and holders put theirs back (see locks/renew.lua).
local epoch, tag, began, till = stamp()
if status == 'ok' and ARGV[10] ~= '' and ARGV[10] ~= began and began ~= '' then
  -- A history that is older than the one known was brought back by a failover, nobody knows when.
  local lost_at = tonumber(began) > tonumber(ARGV[10]) and tonumber(began) or tonumber(at)
  local last = lost_at + tonumber(ARGV[11]) * 1000000
  if last > math.max(till, tonumber(at)) and tonumber(ARGV[11]) > 0 then
    till = last
    set_stamp(epoch, tag, began, till)
  end
end
local soonest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local reply = {
  status, epoch, tag, before, redis.call('ZCARD', KEYS[1]), at,
  soonest[2] and seconds(tonumber(soonest[2]) + lag - now) or '', swept,
  began, seconds(math.max(0, till - tonumber(at)) / 1000000),
}
if string.find(flags, 's', 1, true) then
  reply[#reply + 1] = cjson.encode(redis.call('ZRANGE', KEYS[1], 0, -1))
  reply[#reply + 1] = redis.call('SMEMBERS', KEYS[6])
end
return reply
