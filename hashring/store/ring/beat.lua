-- A node's heartbeat: join or refresh, sweep what expired, say where the ring stands.
--
-- KEYS  13 and 14 of a node that locks keys; others need not know which server this is
-- ARGV  1 node          2 session (16 characters)
--       3 flags: j join, s answer with the ring, f it holds as many keys as it may,
--         r answer with the node's own ranges, w it has other points, for it has another weight,
--         o its own code gave it its weight,
--         b with j: join with the members that the name's last process left there to come back
--       4 the session that a join may take the name from, as it was seen; '' = from nobody
--       5 lead: a score is now + lead    6 lag: a member is dead when its score < now - lag
--       7 '=' and the tag the ring must have; '' = any
--       8 what the node tells of itself, JSON      9 how many events to keep
--       10 when the history began that the node knows; '' = it knows none
--       11 seconds that locks last, as far as it knows
--       12 a digest of the ranges that the node knows; '' = it knows none
--       13 with o, the order about its weight that is lifted thereby, by its time; '' = none
--       14 how many members to drop                15... those, then the node's own members
-- Answer  status, epoch, tag, tag before this call's own change, members, Redis time in
--         microseconds, seconds until the next member expires (with r, of those at the ends of the
--         node's ranges), how many were swept, when this history began, seconds for which no lock
--         may be taken, how many nodes there are, 1 when all of them are full,
--         the node's ranges when asked for: '=' for those of the digest, else 'point own reach' for
--         each of its members, with commas between; the order about its weight (JSON) or '',
--         then, when asked for, the ring's members as one text (JSON, which a client reads in a
--         fraction of the time that as many answers take), and the nodes that are full; or with b the
--         node's members as such a text.
--         status: ok, drained (the same, but by order the node has no member on the ring), taken (the
--         name is in use by another session than the one seen), superseded (by another session under
--         this name, also one that stopped to come back, by a heartbeat with the points that this one
--         was given later, or since this session has ended), moved (the ring is not the one expected),
--         absent (with b: nothing was left there). Only the first two changed anything of the node.
local node, session, flags = ARGV[1], ARGV[2], ARGV[3]
local lead, lag, history = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[9]
local joining = string.find(flags, 'j')
local back = string.find(flags, 'b')

local indexed = lag == 0

-- Before anything is written: an access rule may refuse INFO, and the key may be of another type.
local this_server, noted_server, history_began
if KEYS[13] then
  this_server, noted_server = lineage(), redis.call('GET', KEYS[13])
  -- Somebody may have deleted where the ring stands, and with it until when no lock may be taken.
  history_began = select(3, stamp())
end

cut_scores(lead, lag)
local swept = sweep(now - lag, node, history)
if indexed then
  swept = swept + reconcile(node, history, swept)
end
local _, before = stamp()

-- How many keys nobody serves, as a node tells it.
local function unserved(told)
  if not string.find(told, '"unserved"', 1, true) then
    return 0
  end
  local ok, info = pcall(cjson.decode, told)
  local count = ok and type(info) == 'table' and info.unserved
  return type(count) == 'number' and count > 0 and count < 2^53 and math.floor(count) or 0
end

local function places_of(members)
  local points = {}
  for i, member in ipairs(members) do
    points[i] = string.match(member, '^%d+')
  end
  return table.concat(points, ' ')
end

local status = 'ok'
local entry = redis.call('HGET', KEYS[3], node)
local holder = holder_of(entry)
local other = holder ~= '' and holder ~= session
local away = is_away(entry)

-- The members that the node left on the ring when it stopped to come back; and what its ranges were,
-- with the ring's tag then.
local function left_there()
  local stays = away and told_of(entry).stays
  local members = type(stays) == 'table' and stays.members
  if type(members) ~= 'table' then
    return {}
  end
  for _, member in ipairs(members) do
    if type(member) ~= 'string' then
      return {}
    end
  end
  -- Anything else was not written by park.lua. It takes less time than to look at each member.
  if stays.sum ~= sum_of(node, members) then
    return {}
  end
  return members, stays.ranges, stays.tag
end

-- Which of the sets of points that its session had a node has: a later one has a greater number.
local function placed(told)
  return tonumber(string.match(told, '"placed": (%d+)') or 0)
end

-- A heartbeat may run here after the node gave it up, and after those that the node sent since. Then
-- it states points that the node may have no more, and that nobody would serve.
local mine, known = placed(ARGV[8]), holder == session and placed(entry) or -1

local drop = tonumber(ARGV[14])
local own, told = {}, ARGV[8]
local left_ranges, left_at
if back then
  own, left_ranges, left_at = left_there()
  if own[1] then
    -- What only a process knows that has them.
    told = '{"anchor":' .. cjson.encode(own[1]) .. ',"started":' .. seconds(now) .. ','
      .. string.sub(told, 2)
  end
else
  for i = 15 + drop, #ARGV do
    own[#own + 1] = ARGV[i]
  end
end

if holder ~= session and has_ended(session) then
  status = 'superseded'
elseif back and not own[1] then
  status = 'absent'
elseif (other or away) and not joining then
  status = 'superseded'
elseif other and holder ~= ARGV[4] then
  status = 'taken'
elseif mine < known then
  status = 'superseded'
elseif is_to_drain(node, session, history) then
  status = 'drained'
elseif ARGV[7] ~= '' and ARGV[7] ~= '=' .. before then
  status = 'moved'
elseif away and ARGV[4] ~= '' then
  -- The holder that was seen stopped since, to come back: with its members, not with others.
  status = 'moved'
end

local full = string.find(flags, 'f') ~= nil
local dropping = {}
for i = 1, drop do
  dropping[i] = ARGV[14 + i]
end

local places = redis.call('HGET', KEYS[9], node)

-- The first heartbeat with these points takes away those that the node has besides, which a failover
-- brought back, or a late heartbeat after Redis lost the node's entry; or the process whose name it
-- takes joined with after it was seen, perhaps at the same points.
local function drop_others()
  if mine == known or back or not indexed or not places
    or (places == places_of(own) and holder == session) then
    return
  end
  local listed = {}
  for _, members in ipairs({own, dropping}) do
    for _, member in ipairs(members) do
      listed[member] = true
    end
  end
  for _, member in ipairs(members_at(places, node)) do
    if not listed[member] then
      listed[member] = true
      dropping[#dropping + 1] = member
    end
  end
end

-- Its own code gave the node its weight: the order that it knew does not count any more.
local function take_own_weight()
  if not string.find(flags, 'o') then
    return
  end
  local ordered = weight_of(node, session)
  local lifted = ordered and ordered.since == ARGV[13]
  local weight = told_of(session .. ARGV[8]).weight
  if lifted then
    write_order(node, 'weight', nil)
  end
  if lifted or told_of(entry).weight ~= weight then
    log(history, 'kind', 'weight', 'by', node, 'node', node, 'reason', tostring(weight))
  end
end

-- Write what the node tells of itself.
local function write_entry()
  take_own_weight()
  if other then
    end_session(holder)
  end
  if entry ~= session .. told then
    redis.call('HSET', KEYS[3], node, session .. told)
    if away then
      log(history, 'kind', 'back', 'by', node)
    end
    local count = unserved(ARGV[8])
    if (count > 0) ~= (entry and unserved(string.sub(entry, SESSION + 1)) > 0 or false) then
      log(history, 'kind', 'unserved', 'by', node, 'keys', count)
    end
  end
end

if status == 'ok' or status == 'drained' then
  drop_others()
end
if status == 'ok' then
  local dropped = in_parts('ZREM', KEYS[1], dropping)
  free_former_names(node, dropping)
  -- A node that is back has its members on the ring, as one that goes on.
  if not joining or away then
    begin_to_write()
  end
  local added = set_scores(own, seconds(now + lead))
  write_entry()
  -- A ring without a tag (its epoch was evicted, or deleted) gets one from the first heartbeat:
  -- two such times must not look the same to a node that slept from one to the other.
  if added > 0 or dropped > 0 or other or before == '' then
    if indexed then
      take_off_index(dropping)
      put_on_index(own, full)
    end
    local reason = 'return'
    if redis.call('ZREM', KEYS[11], node) == 1 then
      reason = 'undrained'
    elseif other then
      reason = 'restart'
    elseif string.find(flags, 'w') then
      reason = 'weight'
    elseif joining then
      reason = entry and 'resize' or 'start'
    end
    local change = {
      kind = 'join',
      nodes = {node},
      points = points_of(own),
      session = session,
      reason = reason,
    }
    announce(change, added - dropped, node, history)
    if indexed then
      tell_neighbours(points_of(own, dropping), change, node, other and {node} or {})
    end
    redis.call('HSET', KEYS[9], node, places_of(own))
    redis.call('HDEL', KEYS[5], node)
  elseif not places then
    -- Somebody deleted places: each node puts its own back.
    redis.call('HSET', KEYS[9], node, places_of(own))
  end
elseif status == 'drained' then
  -- So that a full Redis takes the rest, as above.
  redis.call('SREM', KEYS[6], node)
  for _, member in ipairs(own) do
    dropping[#dropping + 1] = member
  end
  local removed = in_parts('ZREM', KEYS[1], dropping)
  free_former_names(node, dropping)
  take_off_index(dropping)
  redis.call('HDEL', KEYS[9], node)
  write_entry()
  redis.call('ZADD', KEYS[11], seconds(now + lead), node)
  if removed > 0 then
    if told_of(session .. ARGV[8]).named == true then
      remember(node, points_of(own))
    end
    local change = {kind = 'leave', nodes = {node}, reason = 'drained'}
    announce(change, -removed, node, history)
    tell_neighbours(points_of(dropping), change, node, other and {node} or {})
  end
end
local accepted = status == 'ok' or status == 'drained'

-- Its members are on the index that they should be on, whoever wrote to that: they are put there
-- together, so one of them shows it. With r each is looked at, below.
local asked = string.find(flags, 'r')
if status == 'ok' and indexed and not asked and own[1]
  and not redis.call('ZSCORE', full and KEYS[8] or KEYS[7], own[1]) then
  put_on_index(own, full)
end

if status == 'ok' and full ~= (some_full and redis.call('SISMEMBER', KEYS[6], node) == 1) then
  redis.call(full and 'SADD' or 'SREM', KEYS[6], node)
  local change = {kind = full and 'full' or 'room', nodes = {node}}
  announce(change, 0, node, history)
  if indexed then
    put_on_index(own, full)
    tell_neighbours(points_of(own), change, node, {})
  end
end

-- Redis restarted, or another server took over: its data may lack the newest locks, so they have
-- another history from now on, as after a loss of everything. So they have where nobody noted which
-- server it was: these data may be older than the first such note. If no lock was ever taken in them,
-- nobody waits; a node that knows of locks does by its own history, which is another one.
local epoch, tag, began, till = stamp()
local ends = began ~= '' and hold_off_end(tonumber(began), till, tonumber(at)) or till
if accepted and ends ~= till then
  till = ends
  set_stamp(epoch, tag, began, till)
end
local unknown = this_server and (this_server ~= noted_server or history_began == '')
if accepted and tag ~= '' and unknown then
  if noted_server or redis.pcall('GET', KEYS[14]) then
    till = math.max(till, tonumber(at) + tonumber(ARGV[11]) * 1000000)
  end
  began = at
  set_stamp(epoch, tag, began, till)
  redis.call('SET', KEYS[13], this_server)
end

-- Redis lost what this node knew, and with it the locks. A node may still believe in one for as long
-- as locks last: until then nobody takes any, and holders put theirs back (see locks/renew.lua).
if accepted and ARGV[10] ~= '' and ARGV[10] ~= began and began ~= '' then
  -- A history that is older than the one known was brought back by a failover, nobody knows when. Nor
  -- is it known of one that began later than now: the clock was set back since.
  local later = tonumber(began) > tonumber(ARGV[10])
  local lost_at = later and math.min(tonumber(began), tonumber(at)) or tonumber(at)
  local last = lost_at + tonumber(ARGV[11]) * 1000000
  if last > math.max(till, tonumber(at)) and tonumber(ARGV[11]) > 0 then
    till = last
    set_stamp(epoch, tag, began, till)
  end
end

-- The node's ranges, and the score of the first member to expire of those at their ends.
local function own_ranges()
  local nobody_full = redis.call('ZCARD', KEYS[8]) == 0
  local ranges, ends = {}, {}
  for i, member in ipairs(own) do
    local seen
    ranges[i], ends[i], seen = range_text(member, node, nobody_full)
    local score = seen or redis.call('ZSCORE', full and KEYS[8] or KEYS[7], member)
    if not seen and (not score or tonumber(score) ~= point_of(member)) then
      put_on_index(own, full)
      return own_ranges()
    end
  end
  local soonest
  for i = 1, #ends, 1000 do
    local last = math.min(i + 999, #ends)
    for j, score in ipairs(redis.call('ZMSCORE', KEYS[1], unpack(ends, i, last))) do
      if not score then
        -- It is on the index alone.
        take_off_index({ends[i + j - 1]})
        return own_ranges()
      end
      score = tonumber(score)
      soonest = soonest and math.min(soonest, score) or score
    end
  end
  return table.concat(ranges, ','), soonest
end

local ranges, soonest = ''
if status == 'ok' and type(left_ranges) == 'string' and left_ranges ~= '' and left_at == tag then
  -- Nobody's members changed, nor who is full. Which are at the ends the next heartbeat looks up;
  -- until then it looks after all that expire.
  ranges, soonest = left_ranges, redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
elseif status == 'ok' and asked then
  ranges, soonest = own_ranges()
  if redis.sha1hex(ranges) == ARGV[12] then
    ranges = '='
  end
elseif status ~= 'drained' then
  -- A drained node takes nothing over, so it need not be there when a member expires.
  soonest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
end
local nodes = math.max(0, redis.call('HLEN', KEYS[3]) - redis.call('ZCARD', KEYS[11]))
local members = redis.call('ZCARD', KEYS[1])
local with_room = redis.call('ZCOUNT', KEYS[7], 0, '+inf')
local ordered = accepted and weight_of(node, session)
local reply = {
  status, epoch, tag, before, members, at,
  soonest and seconds(tonumber(soonest) + lag - now) or '', swept,
  began, seconds(math.max(0, till - tonumber(at)) / 1000000),
  nodes, indexed and with_room == 0 and members > 0 and 1 or 0, ranges,
  ordered and cjson.encode(ordered) or '',
}
if string.find(flags, 's') then
  reply[#reply + 1] = cjson.encode(redis.call('ZRANGE', KEYS[1], 0, -1))
  reply[#reply + 1] = redis.call('SMEMBERS', KEYS[6])
end
if back and accepted then
  reply[#reply + 1] = cjson.encode(own)
end
return reply
