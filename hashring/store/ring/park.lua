-- A named node stops, to come back: its members stay where they are for one ttl more.
--
-- Nobody has the name then, so the next process under it joins with these members, and changes
-- nothing. If none does, they expire as after a crash. For that process its entry lists them, and
-- how far its ranges went: they still do, as long as the ring has the tag.
--
-- ARGV  1 node   2 session   3 lead: a score is now + lead   4 lag   5 how many events to keep
--       6 the ring's tag when the node was told its ranges   7 those; both '' if it follows the ring
--       8... the node's members; none: it asked to be back, and did not hear where it was
-- Answer  status: ok, superseded, absent (it is not on the ring).
local node, session, history = ARGV[1], ARGV[2], ARGV[5]
end_session(session)
local entry = redis.call('HGET', KEYS[3], node)
local holder = holder_of(entry)
if holder ~= session then
  return holder == '' and 'absent' or 'superseded'
end
local members, renewed, expires = {}, 0, seconds(now + tonumber(ARGV[3]))
for i = 8, #ARGV do
  members[#members + 1] = ARGV[i]
end
if #members == 0 and not redis.call('ZSCORE', KEYS[11], node) then
  local places = tonumber(ARGV[4]) == 0 and redis.call('HGET', KEYS[9], node)
  members = places and members_at(places, node) or search_members(node)
end
for i = 1, #members, 500 do
  local scored = {'XX', 'CH'}
  for j = i, math.min(i + 499, #members) do
    scored[#scored + 1] = expires
    scored[#scored + 1] = members[j]
  end
  renewed = renewed + redis.call('ZADD', KEYS[1], unpack(scored))
end
if renewed < #members then
  -- Some are not on the ring any more. To ask for all scores takes longer than to renew them.
  local there = {}
  for _, member in ipairs(members) do
    if redis.call('ZSCORE', KEYS[1], member) then
      there[#there + 1] = member
    end
  end
  members = there
end
if #members == 0 then
  -- Nor is there anything to come back to.
  free_name(node)
  return 'absent'
end
local stays = cjson.encode({
  members = members, sum = sum_of(node, members), tag = ARGV[6], ranges = ARGV[7],
})
redis.call('HSET', KEYS[3], node,
  AWAY .. '{"stays":' .. stays .. ',' .. string.sub(entry, SESSION + 2))
log(history, 'kind', 'stay', 'by', node)
-- Its keys are not for the heirs of a full node to take.
if redis.call('SREM', KEYS[6], node) == 1 then
  local change = {kind = 'room', nodes = {node}}
  announce(change, 0, node, history)
  if tonumber(ARGV[4]) == 0 then
    put_on_index(members, false)
    tell_neighbours(points_of(members), change, node, {})
  end
end
return 'ok'
