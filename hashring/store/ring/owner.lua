-- The node that owns a point. Writes nothing.
--
-- ARGV  1 the point
-- Answer  its name; '' when there is none.
--
-- What expired stays until a node beats, and owns nothing. When all nodes crashed, that is for ever:
-- then no point is looked at.
if redis.call('ZCOUNT', KEYS[1], seconds(now), '+inf') == 0 then
  return ''
end
local point = tonumber(ARGV[1])
local from, to = point, 0
while true do
  local place
  for i = 7, 8 do
    local found = redis.call('ZREVRANGEBYSCORE', KEYS[i], decimal(from), decimal(to), 'WITHSCORES',
      'LIMIT', 0, 1)
    if found[2] then
      place = math.max(place or 0, tonumber(found[2]))
    end
  end
  if place then
    local owner = ''
    for i = 7, 8 do
      for _, member in ipairs(at_point(KEYS[i], place)) do
        -- What is on the index alone is on nobody's ring.
        local expiry = redis.call('ZSCORE', KEYS[1], member)
        local node = expiry and tonumber(expiry) >= now and node_of(member)
        if node and comes_after(node, owner) then
          owner = node
        end
      end
    end
    if owner ~= '' then
      return owner
    end
    from = place - 1
  elseif to == 0 then
    from, to = RING_SIZE, point + 1
  else
    return ''
  end
  if from < to then
    if to > 0 then
      return ''
    end
    from, to = RING_SIZE, point + 1
  end
end
