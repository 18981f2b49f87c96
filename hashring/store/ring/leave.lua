-- A node leaves, or somebody removes it.
--
-- ARGV  1 node   2 session ('' = any)   3 reason   4 by whom
--       5 how many events to keep   6... the node's members
-- Answer  status (ok, superseded, absent), how many members went.
local node, session, history = ARGV[1], ARGV[2], ARGV[5]
local entry = redis.call('HGET', KEYS[3], node)
local holder = holder_of(entry)
if session ~= '' and holder ~= '' and holder ~= session then
  return {'superseded', 0}
end

local removed, points = 0, {}
for i = 6, #ARGV, 1000 do
  removed = removed + redis.call('ZREM', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
for i = 6, #ARGV do
  points[#points + 1] = point_of(ARGV[i])
end
if #points > 0 and told_of(entry).named == true then
  remember(node, points)
end
redis.call('HDEL', KEYS[3], node)
redis.call('SREM', KEYS[6], node)
if removed == 0 then
  return {'absent', 0}
end
announce({kind = 'leave', nodes = {node}, reason = ARGV[3]}, -removed, ARGV[4], history)
return {'ok', removed}
