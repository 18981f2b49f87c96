-- Order other weights for nodes: for all of them, or for none.
--
-- ARGV  1 by whom   2 why   3 how many events to keep
--       4... for each node its name and its weight, '' = its own again
-- Answer  'unknown' and the first node that there is not; else 'ok' and the nodes about which
--         another order stands than before.
local by, why, history = ARGV[1], ARGV[2], ARGV[3]
lift_orders_about_crashed()

for i = 4, #ARGV, 2 do
  local node = ARGV[i]
  if not redis.call('HGET', KEYS[3], node) and not redis.call('HGET', KEYS[5], node)
    and not next(orders_of(node)) then
    return {'unknown', node}
  end
end

local changed = {'ok'}
for i = 4, #ARGV, 2 do
  local node, weight = ARGV[i], ARGV[i + 1]
  local entry = redis.call('HGET', KEYS[3], node)
  local standing = weight_of(node, session_of(node, entry))
  if weight ~= (standing and standing.weight or '') then
    local order
    if weight ~= '' then
      order = {weight = weight, by = by, since = at}
      order.session = made_up_for(node, entry)
    end
    write_order(node, 'weight', order)
    log(history, 'kind', 'weight', 'by', by, 'node', node,
      'reason', (weight == '' and 'its own' or weight) .. (why ~= '' and ', ' .. why or ''))
    call_node(node)
    changed[#changed + 1] = node
  end
end
return changed
