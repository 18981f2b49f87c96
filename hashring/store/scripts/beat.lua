-- A node's heartbeat: join or refresh, sweep what expired, say where the ring stands.
--
-- ARGV  1 node          2 session (16 characters)
--       3 flags: j join, t take the name from whoever has it, s answer with the ring,
--         f it holds as many keys as it may
--       4 lead: a score is now + lead    5 lag: a member is dead when its score < now - lag
--       6 the tag the ring must have ('' = any)
--       7 what the node tells of itself, JSON      8 how many events to keep
--       9 how many members to drop                10... those, then the node's own members
-- Answer  status, epoch, tag, tag before this call's own change, members, Redis time in
--         microseconds, seconds until the next member expires, how many were swept,
--         then, when asked for, the ring's members and the nodes that are full.
--         status: ok, taken (the name is in use), superseded (by another session under this
--         name), moved (the ring is not the one expected). Only ok changed anything of the node.
local node, session, flags = ARGV[1], ARGV[2], ARGV[3]
local lead, lag, history = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[8]
local joining = string.find(flags, 'j', 1, true)

local swept = sweep(now - lag, node, history)
local _, before = stamp()

local status = 'ok'
local entry = redis.call('HGET', KEYS[3], node)
local other = entry and string.sub(entry, 1, SESSION) ~= session
if other and not joining then
  status = 'superseded'
elseif other and not string.find(flags, 't', 1, true) then
  status = 'taken'
elseif ARGV[6] ~= '' and ARGV[6] ~= before then
  status = 'moved'
end

if status == 'ok' then
  local drop = tonumber(ARGV[9])
  local dropped = 0
  for i = 1, drop, 1000 do
    dropped = dropped
      + redis.call('ZREM', KEYS[1], unpack(ARGV, 9 + i, 9 + math.min(i + 999, drop)))
  end
  local score = seconds(now + lead)
  local added = 0
  for i = 10 + drop, #ARGV, 500 do
    local scored = {}
    for j = i, math.min(i + 499, #ARGV) do
      scored[#scored + 1] = score
      scored[#scored + 1] = ARGV[j]
    end
    added = added + redis.call('ZADD', KEYS[1], unpack(scored))
  end
  local told = session .. ARGV[7]
  if entry ~= told then
    redis.call('HSET', KEYS[3], node, told)
  end
  if added > 0 or dropped > 0 or other then
    local points = {}
    for i = 10 + drop, #ARGV do
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
    }, node, history)
    redis.call('HDEL', KEYS[5], node)
  end
end

if status == 'ok' then
  local full = string.find(flags, 'f', 1, true) ~= nil
  if full ~= (redis.call('SISMEMBER', KEYS[6], node) == 1) then
    redis.call(full and 'SADD' or 'SREM', KEYS[6], node)
    announce({kind = full and 'full' or 'room', nodes = {node}}, node, history)
  end
end

local epoch, tag = stamp()
local soonest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local reply = {
  status, epoch, tag, before, redis.call('ZCARD', KEYS[1]), at,
  soonest[2] and seconds(tonumber(soonest[2]) + lag - now) or '', swept,
}
if string.find(flags, 's', 1, true) then
  reply[#reply + 1] = redis.call('ZRANGE', KEYS[1], 0, -1)
  reply[#reply + 1] = redis.call('SMEMBERS', KEYS[6])
end
return reply
