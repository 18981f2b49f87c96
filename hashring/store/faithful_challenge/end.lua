-- Say that work on a partition has ended: step 3.2 of the article.
--
-- KEYS  1 {<group>}:challenge:allocation  2 the allocated channel
-- ARGV  1 partition  2 node

if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return redis.call('PUBLISH', KEYS[2], ARGV[1])
