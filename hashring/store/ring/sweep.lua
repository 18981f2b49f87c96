-- Take away what expired, and entries about nodes that are not on the ring.
--
-- ARGV  1 lag: a member is dead when its score < now - lag   2 by whom   3 how many events to keep
-- Answer  how many members went, how many stray entries went.
cut_scores(0, tonumber(ARGV[1]))
local swept = sweep_all(now - tonumber(ARGV[1]), ARGV[2], ARGV[3])
if tonumber(ARGV[1]) == 0 then
  swept = swept + reconcile(ARGV[2], ARGV[3], swept)
end

local present = {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local node = node_of(member)
  if node then
    present[node] = true
  end
end
for _, node in ipairs(redis.call('ZRANGE', KEYS[11], 0, -1)) do
  present[node] = true
end
local stray = 0
for _, node in ipairs(redis.call('HKEYS', KEYS[3])) do
  if not present[node] then
    stray = stray + redis.call('HDEL', KEYS[3], node)
  end
end
for _, node in ipairs(redis.call('HKEYS', KEYS[9])) do
  if not present[node] then
    redis.call('HDEL', KEYS[9], node)
  end
end
return {swept, stray}
