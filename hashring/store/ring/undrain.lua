-- Lift the order to drain a node: it is back on the ring with its next heartbeat.
--
-- ARGV  1 node   2 by whom   3 how many events to keep
-- Answer  ok, none (there is no such order), unknown (there is no such node).
local node = ARGV[1]
if not orders_of(node).drain then
  local known = redis.call('HGET', KEYS[3], node) or redis.call('HGET', KEYS[5], node)
  return known and 'none' or 'unknown'
end
write_order(node, 'drain', nil)
log(ARGV[3], 'kind', 'undrain', 'by', ARGV[2], 'node', node)
call_node(node)
return 'ok'
