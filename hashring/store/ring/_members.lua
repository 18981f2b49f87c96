-- The members of the ring's ZSET: what their names say, and their scores.

-- The node of a replica; nil for a member that every reader skips as garbage. A message that
-- named the node of such a member would take the real one off the readers' rings.
local function node_of(member)
  local point, node = string.match(member, '^(%d+):(.+):[^:]+$')
  if not point or #point > 10 or tonumber(point) > 4294967295
    or (#point > 1 and string.sub(point, 1, 1) == '0') or not is_text(member) then
    return nil
  end
  return node
end

-- A digest of a node's members, as they are listed in the entry of one that is away.
local function sum_of(node, members)
  return redis.sha1hex(node .. ' ' .. table.concat(members, ' '))
end

local function point_of(member)
  return tonumber(string.match(member, '^(%d+):'))
end

-- The points of the members in some lists.
local function points_of(...)
  local points = {}
  for _, members in ipairs({...}) do
    for _, member in ipairs(members) do
      points[#points + 1] = point_of(member)
    end
  end
  return points
end

-- Give members a score; returns how many of them were not on the ring before.
local function set_scores(members, score)
  local scored = {}
  for i, member in ipairs(members) do
    scored[2 * i - 1] = score
    scored[2 * i] = member
  end
  return in_parts('ZADD', KEYS[1], scored)
end
