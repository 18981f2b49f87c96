-- Let a partition be challenged again: step 6 of the article.
--
-- KEYS  1 {<group>}:challenge:grab
-- ARGV  1 partition  2 node

if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  return redis.call('HDEL', KEYS[1], ARGV[1])
end
return 0
