-- The nodes that know only their own ranges, and what a change gives or takes them.

-- Tell the nodes that know only their own ranges, and whose ranges end at these points or reach on
-- over them, what they have now. They find it out at their next heartbeat in any case.
--
-- `change` is what was announced; `own` the node that needs not be told; `gone` are nodes that are
-- told that it happened to them.
local function tell_neighbours(points, change, own, gone)
  if redis.call('ZCARD', KEYS[7]) + redis.call('ZCARD', KEYS[8]) == 0 and #gone == 0 then
    return
  end
  local concerned, order = {}, {}
  local function concern(member)
    local node, point = node_of(member), place_of(member)
    if not node or node == own then
      return
    end
    if concerned[node] == nil then
      -- Nodes that follow the ring hear of the change on its channel.
      local entry = redis.call('HGET', KEYS[3], node)
      concerned[node] = entry and string.find(entry, '"ranges":', 1, true) and {} or false
      if concerned[node] then
        order[#order + 1] = node
      end
    end
    if not concerned[node] then
      return
    end
    concerned[node][point] = member
  end
  local nobody_full = redis.call('ZCARD', KEYS[8]) == 0
  local indexes = nobody_full and {KEYS[7]} or {KEYS[7], KEYS[8]}
  for _, point in ipairs(points) do
    for _, index in ipairs(indexes) do
      -- As a rule there is one member on the point, or none, and one on the point before.
      local found = redis.call('ZREVRANGEBYSCORE', index, decimal(point), '0', 'LIMIT', 0, 3)
      local before, certain
      for _, member in ipairs(found) do
        local place = place_of(member) or point
        if place < point and not before then
          before = place
        elseif place < point and place < before then
          certain = true
          break
        end
        concern(member)
      end
      if not before then
        -- None below the point, or many on it.
        for _, member in ipairs(at_point(index, point)) do
          concern(member)
        end
        found = redis.call('ZREVRANGEBYSCORE', index, '(' .. decimal(point), '0', 'LIMIT', 0, 1)
        if #found == 0 then
          found = redis.call('ZREVRANGEBYSCORE', index, '+inf', '0', 'LIMIT', 0, 1)
        end
        before = found[1] and place_of(found[1])
      end
      if before and not certain then
        for _, member in ipairs(at_point(index, before)) do
          concern(member)
        end
      end
    end
  end
  change.points = nil
  local channel = string.sub(KEYS[7], 1, -7) .. 'to:'
  local function head()
    return 'ranges\n' .. string.sub(cjson.encode(change), 1, -2) .. ',"ranges":"'
  end
  local begins = head()
  for _, node in ipairs(order) do
    local ranges, ends = {}, {}
    for point in pairs(concerned[node]) do
      ends[#ends + 1] = point
    end
    table.sort(ends)
    for i, point in ipairs(ends) do
      ranges[i] = range_text(concerned[node][point], node, nobody_full)
    end
    redis.call('PUBLISH', channel .. node, begins .. table.concat(ranges, ',') .. '"}')
  end
  for _, node in ipairs(gone) do
    if not concerned[node] then
      -- Thousands may go at once: to name all of them to each would take the square of that.
      change.nodes = {node}
      redis.call('PUBLISH', channel .. node, head() .. '"}')
    end
  end
end
