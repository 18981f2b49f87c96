-- What was ordered about a node: to drain, or another weight.

local OVER = 'its time was up'

-- What was ordered about a node; an empty table when nothing was, or nothing that was written here.
local function orders_of(node)
  if not some_ordered then
    return {}
  end
  local ok, orders = pcall(cjson.decode, redis.call('HGET', KEYS[10], node) or '')
  return ok and type(orders) == 'table' and orders or {}
end

-- The order to drain that stands about a node whose name this session holds; else why the one that
-- there is does not stand any more.
local function drain_of(node, session)
  local drain = orders_of(node).drain
  if type(drain) ~= 'table' then
    return nil
  end
  if drain.ends and not (tonumber(drain.ends) and tonumber(drain.ends) > tonumber(at)) then
    return nil, OVER
  end
  if drain.session and drain.session ~= session then
    return nil, 'another process has the name'
  end
  return drain
end

-- The session that has a node's name. Without an entry it is the one that the last order is about:
-- its process crashed, or is paused and comes back. '' for a name that may have another session.
local function session_of(node, entry)
  if entry or redis.call('HGET', KEYS[5], node) then
    return holder_of(entry)
  end
  local last = {}
  local orders = orders_of(node)
  for _, order in pairs({drain = orders.drain, weight = orders.weight}) do
    if type(order) == 'table' and (tonumber(order.since) or 0) > (tonumber(last.since) or 0) then
      last = order
    end
  end
  return type(last.session) == 'string' and last.session or ''
end

-- The session that an order is about. A made-up name may be another process' tomorrow, so an order
-- is about the one that has it now; nil for a node with a name of its own, and when nobody knows.
local function made_up_for(node, entry)
  local session = session_of(node, entry)
  return session ~= '' and told_of(entry).named ~= true and session or nil
end

-- The order about the weight of a node whose name this session holds, if one stands.
local function weight_of(node, session)
  local weight = orders_of(node).weight
  if type(weight) ~= 'table' or type(weight.weight) ~= 'string' or type(weight.by) ~= 'string'
    or type(weight.since) ~= 'string' or not string.find(weight.since, '^%d+$')
    or not is_text(weight.by) or weight.session and weight.session ~= session then
    return nil
  end
  return {weight = weight.weight, by = weight.by, since = weight.since, session = weight.session}
end

-- Write an order about a node, 'drain' or 'weight', nil to lift it.
local function write_order(node, kind, order)
  if not order then
    begin_to_write()
  end
  local orders = orders_of(node)
  orders[kind] = order
  local ok, written = pcall(cjson.encode, orders)
  if not ok then
    -- Somebody wrote there what JSON cannot say, such as 1e999.
    orders = {[kind] = order}
    written = cjson.encode(orders)
  end
  if next(orders) then
    redis.call('HSET', KEYS[10], node, written)
    some_ordered = true
  else
    redis.call('HDEL', KEYS[10], node)
  end
end

-- Lift the orders about a process that has ended: nobody starts again under a made-up name.
local function lift_orders_about(node, session)
  local orders = orders_of(node)
  for _, kind in ipairs({'drain', 'weight'}) do
    if type(orders[kind]) == 'table' and orders[kind].session == session then
      write_order(node, kind, nil)
    end
  end
end

-- Lift the old orders about processes that crashed under made-up names: nobody else does.
local function lift_orders_about_crashed()
  local ordered = redis.call('HGETALL', KEYS[10])
  for i = 1, #ordered, 2 do
    local node = ordered[i]
    local orders = redis.call('HGET', KEYS[3], node) and {} or orders_of(node)
    for kind, order in pairs({drain = orders.drain, weight = orders.weight}) do
      if type(order) == 'table' and order.session
        and not ((tonumber(order.since) or 0) / 1000000 >= now - FORGET_AFTER) then
        write_order(node, kind, nil)
      end
    end
  end
end

-- Whether a node whose name this session holds is to drain. What does not stand any more is lifted.
local function is_to_drain(node, session, history)
  local drain, stale = drain_of(node, session)
  if stale then
    write_order(node, 'drain', nil)
    log(history, 'kind', 'undrain', 'by', node, 'node', node, 'reason', stale)
  end
  return drain ~= nil
end

-- Have a node beat at once, since an order about it changed. It beats in any case, later.
local function call_node(node)
  redis.call('PUBLISH', string.sub(KEYS[7], 1, -7) .. 'to:' .. node, 'order')
end
