-- Challenge a partition: steps 1.1 and 1.2 of the article.
--
-- KEYS  1 {<group>}:challenge:allocation  2 {<group>}:challenge:grab  3 the grab channel
-- ARGV  1 partition  2 1 to clear both hashes first

-- A script that fails midway is not rolled back: a key of the wrong type must fail it here.
redis.call('HLEN', KEYS[1])
redis.call('HLEN', KEYS[2])
if ARGV[2] == '1' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
end
return redis.call('PUBLISH', KEYS[3], ARGV[1])
