-- Order a node to drain: from its next heartbeat on it beats, and has no member on the ring.
--
-- ARGV  1 node   2 by whom   3 seconds after which the order ends by itself, '' = never
--       4 '1': also when no other node is left   5 lag: a member is dead when its score < now - lag
--       6 how many events to keep
-- Answer  ok, unknown (there is no such node), last (no other node is left; nothing was ordered).
local node, by, history = ARGV[1], ARGV[2], ARGV[6]
local lag = tonumber(ARGV[5])
sweep_all(now - lag, by, history)
lift_orders_about_crashed()

local entry = redis.call('HGET', KEYS[3], node)
if not entry and not redis.call('HGET', KEYS[5], node) and not next(orders_of(node)) then
  return 'unknown'
end

-- The nodes that beat and are not to drain, besides this one. One that stopped to come back does not.
local others = 0
local entries = redis.call('HGETALL', KEYS[3])
for i = 1, #entries, 2 do
  if entries[i] ~= node and not is_away(entries[i + 1]) then
    others = others + 1
  end
end
local ordered = redis.call('HGETALL', KEYS[10])
for i = 1, #ordered, 2 do
  local other = ordered[i]
  local held = redis.call('HGET', KEYS[3], other)
  local stands, stale = drain_of(other, holder_of(held))
  if other ~= node and held and stands and not is_away(held) then
    others = others - 1
  elseif other ~= node and not held and stale == OVER then
    write_order(other, 'drain', nil)
  end
end
local alone = others <= 0
if alone and lag > 0 then
  -- Nodes of redis-hashring have no entry.
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local other = node_of(member)
    if other and other ~= node and not redis.call('HGET', KEYS[3], other) then
      alone = false
      break
    end
  end
end
if alone and ARGV[4] ~= '1' and not drain_of(node, session_of(node, entry)) then
  return 'last'
end

local drain = {by = by, since = at}
if ARGV[3] ~= '' then
  drain.ends = string.format('%.0f', tonumber(at) + tonumber(ARGV[3]) * 1000000)
end
drain.session = made_up_for(node, entry)
write_order(node, 'drain', drain)
log(history, 'kind', 'drain', 'by', by, 'node', node,
  'reason', ARGV[3] ~= '' and 'for ' .. ARGV[3] .. ' s' or '')
call_node(node)
return 'ok'
