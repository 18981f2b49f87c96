-- How far the ranges of a replica go, by the index.

-- What follows a replica of a node, as distances from its point: to the end of its own range, and to
-- the end of what it may take keys in, which goes on over the ranges of full nodes. Both 0 for a
-- replica whose point another node owns. Third the member at the end of its own range.
local function reach_of(point, node)
  -- On a point that several nodes have, the one whose name comes last by its bytes is the owner.
  -- Full nodes are passed over; this one is not, whether it is full or not.
  local owns, inherits = true, true
  for _, member in ipairs(at_point(KEYS[7], point)) do
    if comes_after(node_of(member) or '', node) then
      owns, inherits = false, false
    end
  end
  for _, member in ipairs(at_point(KEYS[8], point)) do
    owns = owns and not comes_after(node_of(member) or '', node)
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
