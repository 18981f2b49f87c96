-- A named node stops, to come back: its members stay where they are for one ttl more.
--
-- Nobody has the name then, so the next process under it joins with these members, and changes
-- nothing. If none does, they expire as after a crash.
--
-- ARGV  1 node   2 session   3 lead: a score is now + lead   4 lag   5 how many events to keep
--       6... the node's members
-- Answer  status (ok, superseded, absent: it is not on the ring), how many members stay.
local node, session, history = ARGV[1], ARGV[2], ARGV[5]
local entry = redis.call('HGET', KEYS[3], node)
local holder = holder_of(entry)
if holder ~= session then
  return {holder == '' and 'absent' or 'superseded', 0}
end
local members, points = {}, {}
for i = 6, #ARGV do
  if redis.call('ZSCORE', KEYS[1], ARGV[i]) then
    members[#members + 1] = ARGV[i]
    points[#points + 1] = point_of(ARGV[i])
  end
end
if #members == 0 then
  return {'absent', 0}
end
local score = seconds(now + tonumber(ARGV[3]))
for _, member in ipairs(members) do
  redis.call('ZADD', KEYS[1], score, member)
end
redis.call('HSET', KEYS[3], node, AWAY .. string.sub(entry, SESSION + 1))
log(history, 'kind', 'stay', 'by', node)
-- Its keys are not for the heirs of a full node to take.
if redis.call('SREM', KEYS[6], node) == 1 then
  local change = {kind = 'room', nodes = {node}}
  announce(change, 0, node, history)
  if tonumber(ARGV[4]) == 0 then
    put_on_index(members, false)
    tell_neighbours(points, change, node, {})
  end
end
return {'ok', #members}
