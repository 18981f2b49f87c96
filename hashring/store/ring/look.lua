-- What a node must know of the ring before it joins: what was its own, and stretches of the ring.
-- Costs the same whatever the ring's size.
--
-- ARGV  1 node          2 a ring of at most so many replicas is wanted whole; 0 = no stretch is
--       3 of a larger ring: how many replicas of each stretch      4... where the stretches begin
-- Answer  epoch, tag, Redis time in microseconds, members of the ring, the node's entry or '',
--         the remembered points (JSON) or '', its members, which of its points and of those
--         remembered another node has, how many replicas are on the index, the order about its
--         weight (JSON) or '',
--         then each stretch as an array of its members, by point; of a whole ring one.
local node, whole = ARGV[1], tonumber(ARGV[2])
local entry = redis.call('HGET', KEYS[3], node)
local place = redis.call('HGET', KEYS[9], node)
local memory = redis.call('HGET', KEYS[5], node)

local own, taken = {}, {}
local function look_at(points)
  for _, point in ipairs(points) do
    for _, member in ipairs(all_at_point(point)) do
      if not redis.call('ZSCORE', KEYS[1], member) then
        -- It is on the index alone.
      elseif node_of(member) == node then
        own[#own + 1] = member
      else
        taken[#taken + 1] = point
        break
      end
    end
  end
end
look_at(points_in(place or ''))
if #own == 0 then
  look_at(points_in(memory or ''))
end
if entry and not place and not redis.call('ZSCORE', KEYS[11], node) then
  -- Somebody deleted the places: look for its members among all.
  own = search_members(node)
end

local epoch, tag = stamp()
local ordered = weight_of(node, holder_of(entry))
local reply = {
  epoch, tag, at, redis.call('ZCARD', KEYS[1]), entry or '', memory or '', own, taken,
  redis.call('ZCOUNT', KEYS[7], 0, '+inf') + redis.call('ZCOUNT', KEYS[8], 0, '+inf'),
  ordered and cjson.encode(ordered) or '',
}

local nobody_full = redis.call('ZCARD', KEYS[8]) == 0

-- So many members of the index from a point on, by point.
local function stretch(from, to, count)
  local limit = decimal(count)
  local found = redis.call('ZRANGEBYSCORE', KEYS[7], from, to, 'LIMIT', '0', limit)
  if nobody_full then
    return found
  end
  local full = redis.call('ZRANGEBYSCORE', KEYS[8], from, to, 'LIMIT', '0', limit)
  local at, merged = {1, 1}, {}
  local lists = {found, full}
  while #merged < count do
    local first, second = found[at[1]], full[at[2]]
    if not first and not second then
      break
    end
    -- Readers skip garbage, so its place does not matter.
    local next_of = (not second
      or first and (place_of(first) or 0) <= (place_of(second) or 0)) and 1 or 2
    merged[#merged + 1] = lists[next_of][at[next_of]]
    at[next_of] = at[next_of] + 1
  end
  return merged
end

if whole > 0 and reply[9] <= whole then
  reply[#reply + 1] = stretch('0', '+inf', whole)
elseif whole > 0 then
  local count = tonumber(ARGV[3])
  for i = 4, #ARGV do
    local found = stretch(ARGV[i], '+inf', count)
    if #found < count then
      -- It goes on behind the top of the ring.
      for _, member in ipairs(stretch('0', '(' .. ARGV[i], count - #found)) do
        found[#found + 1] = member
      end
    end
    reply[#reply + 1] = found
  end
end
return reply
