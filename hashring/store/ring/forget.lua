-- Note that a ring was stopped for good. A ring that has a live node is left as it is.
--
-- ARGV  1 lag: a member is dead when its score < now - lag   2 by whom   3 how many events to keep
-- Answer  how many members and drained nodes are left on the ring: with none it was noted.
sweep_all(now - tonumber(ARGV[1]), ARGV[2], ARGV[3])
local left = redis.call('ZCARD', KEYS[1]) + redis.call('ZCARD', KEYS[11])
if left == 0 then
  begin_to_write()
  log(ARGV[3], 'kind', 'forget', 'by', ARGV[2])
end
return left
