-- What is known of a node: its entry, the sessions that held its name, where it was.

local SESSION = 16
local AWAY = string.rep('-', SESSION) -- the session of a node that stopped to come back
local FORGET_AFTER = 86400 -- seconds a named node's points are remembered after it went
local FORGET_ABOVE = 256   -- names remembered before the old ones are looked for
local FORGET_EVERY = 3600  -- seconds between two such looks at all names, however many leave
local END_KEPT = 3600      -- seconds; the network gives up sooner on what is on its way

-- The session that holds a name, from the name's entry; '' for an entry not written here, and for
-- the entry of a node that stopped to come back.
local function holder_of(entry)
  local session = string.match(entry or '', '^([%w_-]+){') or ''
  return #session == SESSION and session ~= AWAY and session or ''
end

-- Whether an entry is that of a node that stopped to come back.
local function is_away(entry)
  return string.sub(entry or '', 1, SESSION) == AWAY
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

-- Nobody has the node's name any more, and nothing says where it is.
local function free_name(node)
  redis.call('HDEL', KEYS[3], node)
  redis.call('HDEL', KEYS[9], node)
  redis.call('SREM', KEYS[6], node)
  redis.call('ZREM', KEYS[11], node)
end

-- A node has dropped these members. Those under another name it had itself, before it met that name
-- under another session: nobody has the name any more, unless that session has members of its own.
local function free_former_names(node, dropped)
  for _, member in ipairs(dropped) do
    local name = node_of(member)
    local entry = name and name ~= node and redis.call('HGET', KEYS[3], name)
    if entry and not is_on_ring(told_of(entry)) and not redis.call('ZSCORE', KEYS[11], name) then
      free_name(name)
    end
  end
end
