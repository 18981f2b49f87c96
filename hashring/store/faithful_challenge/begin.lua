-- Say who works on a partition: step 5 of the article.
--
-- KEYS  1 {<group>}:challenge:allocation  2 {<group>}:challenge:grab
-- ARGV  1 partition  2 node
-- Returns 1, or 0 when the grab is another's by now.

if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then
  return 0
end
-- On a server that is full, too: see race.lua.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
