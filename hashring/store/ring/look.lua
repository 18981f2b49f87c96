-- What a node must know of the ring before it joins: what was its own, and ranges of busy nodes.
-- Costs the same whatever the ring's size.
--
-- ARGV  1 node          2 the most nodes whose ranges are wanted; 0 = none
--       3... points: if the ring has more nodes than that, the owners of these are wanted
-- Answer  epoch, tag, Redis time in microseconds, members of the ring, the node's entry or '',
--         the remembered points (JSON) or '', its members, which of its points and of those
--         remembered another node has, how many replicas are on the index, the order about its
--         weight (JSON) or '',
--         then for each wanted node its name and 'point length,...' of its ranges.
local node, most = ARGV[1], tonumber(ARGV[2])
local entry = redis.call('HGET', KEYS[3], node)
local place = redis.call('HGET', KEYS[9], node)
local memory = redis.call('HGET', KEYS[5], node)

-- The numbers in a text, whoever wrote it.
local function numbers(text)
  local found = {}
  for digits in string.gmatch(text or '', '%d+') do
    if #digits <= 10 then
      found[#found + 1] = tonumber(digits)
    end
  end
  return found
end

-- The members of the ring at a point; those of one node alone, when it is given.
local function here(point, of)
  local found = {}
  for i = 7, 8 do
    for _, member in ipairs(at_point(KEYS[i], point)) do
      if (not of or node_of(member) == of) and redis.call('ZSCORE', KEYS[1], member) then
        found[#found + 1] = member
      end
    end
  end
  return found
end

local own, taken = {}, {}
local function look_at(points)
  for _, point in ipairs(points) do
    for _, member in ipairs(here(point)) do
      if node_of(member) == node then
        own[#own + 1] = member
      else
        taken[#taken + 1] = point
        break
      end
    end
  end
end
look_at(numbers(place))
if #own == 0 then
  look_at(numbers(memory))
end
if entry and not place and not redis.call('ZSCORE', KEYS[11], node) then
  -- Somebody deleted the places: look for its members among all.
  own = {}
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if node_of(member) == node then
      own[#own + 1] = member
    end
  end
end

local epoch, tag = stamp()
local ordered = weight_of(node, holder_of(entry))
local reply = {
  epoch, tag, at, redis.call('ZCARD', KEYS[1]), entry or '', memory or '', own, taken,
  redis.call('ZCOUNT', KEYS[7], 0, '+inf') + redis.call('ZCOUNT', KEYS[8], 0, '+inf'),
  ordered and cjson.encode(ordered) or '',
}

-- The node of the last replica up to a point, around the ring.
local function owner_of(point)
  for _, from in ipairs({decimal(point), '+inf'}) do
    local owner, last
    for i = 7, 8 do
      local found = redis.call('ZREVRANGEBYSCORE', KEYS[i], from, '0', 'LIMIT', 0, 1)[1]
      local start = found and place_of(found)
      if start and (not last or start > last) then
        owner, last = node_of(found), start
      end
    end
    if owner then
      return owner
    end
  end
end

-- The own range of a node's point, as 'point length'; nothing where it has none. Asked of some
-- thousand points, so there is a short way: when nobody is full, and nobody else is on the point.
local nobody_full = redis.call('ZCARD', KEYS[8]) == 0
local function range_at(point, name)
  if nobody_full then
    local found = redis.call('ZRANGEBYSCORE', KEYS[7], point, '+inf', 'LIMIT', 0, 2)
    local prefix = point .. ':' .. name .. ':'
    local last = found[2] and string.match(found[2], '^%d+')
    if last and last ~= point and string.sub(found[1], 1, #prefix) == prefix
      and not string.find(found[1], ':', #prefix + 1, true) then
      return point .. ' ' .. decimal(tonumber(last) - tonumber(point))
    end
  end
  if here(tonumber(point), name)[1] then
    return point .. ' ' .. decimal((reach_of(tonumber(point), name)))
  end
end

local wanted = {}
if most > 0 and redis.call('HLEN', KEYS[9]) <= most then
  wanted = redis.call('HKEYS', KEYS[9])
else
  local seen = {}
  for i = 3, #ARGV do
    local owner = owner_of(tonumber(ARGV[i]))
    if owner and not seen[owner] then
      seen[owner] = true
      wanted[#wanted + 1] = owner
    end
  end
end
for _, name in ipairs(wanted) do
  local ranges = {}
  for _, point in ipairs(numbers(redis.call('HGET', KEYS[9], name))) do
    ranges[#ranges + 1] = range_at(decimal(point), name)
  end
  reply[#reply + 1] = name
  reply[#reply + 1] = table.concat(ranges, ',')
end
return reply
