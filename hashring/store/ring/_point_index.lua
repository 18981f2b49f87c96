-- The index of the ring by points: which replicas are at a point, and which come after it.

local RING_SIZE = 4294967296

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
  local place = tonumber(string.match(member, '^(%d+):.+:[^:]+$'))
  return place and place < RING_SIZE and place or nil
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

-- The same, whether their nodes have room or are full.
local function all_at_point(point)
  local found = at_point(KEYS[7], point)
  for _, member in ipairs(at_point(KEYS[8], point)) do
    found[#found + 1] = member
  end
  return found
end

-- The points that a text names, whoever wrote it.
local function points_in(text)
  local found = {}
  for digits in string.gmatch(text, '%d+') do
    if #digits <= 10 then
      found[#found + 1] = tonumber(digits)
    end
  end
  return found
end

-- The members of a node on the index, at the points that a text names.
local function members_at(text, node)
  local found = {}
  for _, point in ipairs(points_in(text)) do
    for _, member in ipairs(all_at_point(point)) do
      if node_of(member) == node then
        found[#found + 1] = member
      end
    end
  end
  return found
end

-- A node's members, looked for among all of the ring.
local function search_members(node)
  local found = {}
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if node_of(member) == node then
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
