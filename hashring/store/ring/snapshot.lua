-- Everything of the ring at one instant. Writes nothing, so a replica may answer it.
--
-- ARGV  1 a node whose remembered points are wanted, or ''   2 '1': the index is wanted, too
-- Answer  epoch, tag, Redis time in microseconds, members with scores, nodes with what they tell,
--         the remembered points (JSON) or '', how many members are on the index, what was ordered
--         about nodes (JSON), drained nodes with scores; then, when it is wanted, the index of nodes
--         with room and that of full nodes, both with scores.
local epoch, tag = stamp()
local reply = {
  epoch, tag, at,
  redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', KEYS[3]),
  ARGV[1] ~= '' and redis.call('HGET', KEYS[5], ARGV[1]) or '',
  redis.call('ZCARD', KEYS[7]) + redis.call('ZCARD', KEYS[8]),
  redis.call('HGETALL', KEYS[10]),
  redis.call('ZRANGE', KEYS[11], 0, -1, 'WITHSCORES'),
}
if ARGV[2] == '1' then
  reply[#reply + 1] = redis.call('ZRANGE', KEYS[7], 0, -1, 'WITHSCORES')
  reply[#reply + 1] = redis.call('ZRANGE', KEYS[8], 0, -1, 'WITHSCORES')
end
return reply
