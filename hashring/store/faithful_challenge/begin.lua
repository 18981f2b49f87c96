-- Say who works on a partition: step 5 of the article.
--
-- KEYS  1 {<group>}:challenge:allocation  2 {<group>}:challenge:grab
-- ARGV  1 partition  2 node
-- Returns 1, or 0 when the grab is another's by now.

if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
