-- Try to set the grab: steps 2.1 and 4 of the article.
--
-- KEYS  1 {<group>}:challenge:allocation  2 {<group>}:challenge:grab
-- ARGV  1 partition  2 node
-- Returns {1 when the node has the grab, the node that works on the partition or ''}.

-- A script that fails midway is not rolled back: a key of the wrong type must fail it here.
redis.call('HLEN', KEYS[1])
local taken_by = redis.call('HGET', KEYS[2], ARGV[1])
if not taken_by then
  -- A server that is full refuses a script's first write if it takes memory. An owner keeps what it has
  -- by racing for it, and one race that fails holds up all that its node does.
  redis.call('HDEL', KEYS[2], '')
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
end
local won = (taken_by or ARGV[2]) == ARGV[2] and 1 or 0
return {won, redis.call('HGET', KEYS[1], ARGV[1]) or ''}
