-- The two hashes of a faithful challenge: {allocation, grab}, each field, value, ...
--
-- KEYS  1 {<group>}:challenge:allocation  2 {<group>}:challenge:grab

return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
