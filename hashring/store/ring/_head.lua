-- What every script of the ring begins with, and then the other files with a _ (lua_scripts.py).
--
-- KEYS of every script:
--   1  <ring>            ZSET     one member a replica, start:node:id
--   2  {<ring>}:epoch    string   "number tag" of the last change; "began until": Redis time at which
--                                 this history began, and up to which no lock may be taken
--   3  {<ring>}:nodes    hash     node -> 16 characters of session, then JSON of what it tells
--   4  {<ring>}:events   stream   history, capped
--   5  {<ring>}:left     hash     node -> JSON of the points a named node had when it went
--   6  {<ring>}:full     set      the nodes that hold as many keys as they may
--   7  {<ring>}:points   ZSET     the members of nodes with room, scored by their point; by -1 those
--                                 that no reader counts
--   8  {<ring>}:full-points  ZSET the same of nodes that are full
--   9  {<ring>}:places   hash     node -> the points of its members, with spaces between
--  10  {<ring>}:orders   hash     node -> JSON of what was ordered about it
--  11  {<ring>}:drained  ZSET     the nodes that beat and have no member, by order; scored like members
--  12  {<ring>}:ended    ZSET     sessions that have ended, scored by when they are forgotten
--  13  {<ring>}:lock-server  string  with a heartbeat of a node that locks keys: which server's data
--                                 these are, as the last such heartbeat found it, see ../_which_server.lua
--  14  {<ring>}:token    string   with the same: the last fencing token, see locks/_head.lua
-- The channel has the name of KEYS[1]; a node's own channel is {<ring>}:to:<node>.
--
-- KEYS 7 and 8 together are an index of KEYS[1]: they have the same members. A ring in the form of
-- redis-hashring has none, since its nodes would not keep it.
--
-- Time is this server's; no client's clock is ever used.

-- A script that fails midway is not rolled back: a key of the wrong type must fail it here. What is
-- found here need not be asked for again, as long as nothing is written.
local members_at_first = redis.call('ZCARD', KEYS[1])
local stamped = redis.call('GET', KEYS[2]) -- set_stamp keeps it up to date
redis.call('HLEN', KEYS[3])
redis.call('XLEN', KEYS[4])
redis.call('HLEN', KEYS[5])
local some_full = redis.call('SCARD', KEYS[6]) > 0
local indexed_at_first = redis.call('ZCARD', KEYS[7]) + redis.call('ZCARD', KEYS[8])
redis.call('HLEN', KEYS[9])
local some_ordered = redis.call('HLEN', KEYS[10]) > 0 -- write_order keeps it up to date
local some_drained = redis.call('ZCARD', KEYS[11]) > 0
redis.call('ZCARD', KEYS[12])

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local at = string.format('%d%06d', tonumber(time[1]), tonumber(time[2]))

local function seconds(value)
  return string.format('%.6f', value)
end

-- A full Redis refuses ZADD and HSET as the first write of a script, and takes them as a later one.
-- What is renewed, repaired or lifted needs no memory, so it begins with a write that is never refused.
-- No node has an empty name; a member, which is garbage, may.
local function begin_to_write()
  redis.call('SREM', KEYS[6], '')
end

-- Call a command with many arguments; no more at a time than fit into Lua's stack.
local function in_parts(command, key, arguments)
  local count = 0
  for i = 1, #arguments, 1000 do
    count = count + redis.call(command, key, unpack(arguments, i, math.min(i + 999, #arguments)))
  end
  return count
end
