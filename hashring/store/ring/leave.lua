-- A node leaves, or somebody removes it.
--
-- ARGV  1 node   2 session ('' = any)   3 reason   4 by whom
--       5 how many events to keep   6 how many members it was about to give up
--       7... those, then the node's own members
-- Answer  status: ok, superseded (another session has the name, or stopped to come back), absent
--         (none of the members was on the ring).
local node, session, history = ARGV[1], ARGV[2], ARGV[5]
if ARGV[3] == 'stop' and session ~= '' then
  end_session(session)
end
local entry = redis.call('HGET', KEYS[3], node)
local holder = holder_of(entry)
-- A process that gave up its start may list what another left on the ring to come back.
if session ~= '' and holder ~= session and (holder ~= '' or is_away(entry)) then
  return 'superseded'
end

local members, own, first_own = {}, {}, 7 + tonumber(ARGV[6])
for i = 7, #ARGV do
  members[#members + 1] = ARGV[i]
  if i >= first_own then
    own[#own + 1] = ARGV[i]
  end
end
local removed = in_parts('ZREM', KEYS[1], members)
free_former_names(node, members)
take_off_index(members)
if #own > 0 and told_of(entry).named == true then
  remember(node, points_of(own))
end
free_name(node)
if ARGV[3] == 'stop' then
  lift_orders_about(node, session)
end
if removed == 0 then
  return 'absent'
end
local change = {kind = 'leave', nodes = {node}, reason = ARGV[3]}
announce(change, -removed, ARGV[4], history)
tell_neighbours(points_of(members), change, node, {node})
return 'ok'
