-- What every script of a partition group shares. Prepended to each of them.
--
-- KEYS of every script:
--   1  {<group>}:group:state    hash    =<name>: a part of the state, JSON; ~<n>: the decision of that
--                                       generation modulo 512: its tag, the tag before, and the
--                                       parts that it changed, "*" for all;
--                                       tag: "generation:microseconds" of the commit, before the
--                                       first that of the first join, as generation 0;
--                                       phase; due: Redis time of the next step, but for leases
--                                       that end; changes: counts facts that changed; joins; claimed:
--                                       "until member": who is at work on the next step;
--                                       decider: "session member": who took the last one;
--                                       watched: "due n": how many members wait for that due;
--                                       server: the run of Redis that the last step read; see ../_which_server.lua;
--                                       clock: "latest ahead" in microseconds: what the group's clock
--                                       showed last, and by how much it is ahead of the server's
--   2  {<group>}:group:members  hash    member -> "session joined JSON of what it reports"
--   3  {<group>}:group:leases   zset    member -> Redis time at which its lease ends
--   4  {<group>}:group:views    hash    member -> "session tag", and in lines "tag JSON" the latest
--                                       changes of its part of the state since the decision of
--                                       that tag; "-" for none, "?" for one that is not known
--   5  {<group>}:group:control  stream  every decision, capped; its name is the channel's, too, for
--                                       those who watch the group: the tag of every decision
-- A member's own channel is {<group>}:group:to:<member>. A message is the tag of a decision that
-- concerns it, or "step": it is to take the next step.
--
-- Time is this server's; no client's clock is ever used. If somebody sets it back, the group's clock
-- goes on from where it was, and is ahead from then on: to the group it stood still for a moment.
-- "Redis time" is the group's clock, here and wherever a group is spoken of.
--
-- Tokens are larger than Lua's JSON writes exactly, so nothing here ever re-encodes JSON.

-- A script that fails midway is not rolled back: a key of the wrong type must fail it here. The first
-- one does below, where the clock is read.
redis.call('HLEN', KEYS[2])
redis.call('ZCARD', KEYS[3])
redis.call('HLEN', KEYS[4])
redis.call('XLEN', KEYS[5])

local time = redis.call('TIME')
local micros = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- With more digits it was not written here, and no number of Lua's is exact.
local latest, ahead = string.match(redis.call('HGET', KEYS[1], 'clock') or '', '^(%d+) (%d+)$')
if latest and #latest < 17 and #ahead < 17 then
  ahead = math.max(tonumber(ahead), tonumber(latest) - micros)
else
  ahead = 0
end
micros = micros + ahead
local now = micros / 1000000
local at = string.format('%.0f', micros)

-- Have the group's clock go on from this moment. Once the server's clock was set back, it stands still
-- until a script does so: every one that changes something, or has somebody wait for time to pass.
local function keep_clock()
  redis.call('HSET', KEYS[1], 'clock', at .. ' ' .. string.format('%.0f', ahead))
end

-- A server that is full refuses a script's first write if it may take memory: then one that takes none
-- is to come first. What keeps or frees what stands, and every decision, begins with it; a join does not.
local function begin_to_write()
  redis.call('HDEL', KEYS[1], '')
end

-- The same as keep_clock, if there is a group, and on a server that is full, too. tag: see generation().
local function keep_clock_of_group(tag)
  begin_to_write()
  if tag ~= '' then
    keep_clock()
  end
end

local function text(value)
  return string.format('%.6f', value)
end

local function number(field, default)
  return tonumber(redis.call('HGET', KEYS[1], field) or '') or default
end

-- Session, order of joining and report of a member; nil when there is none.
local function record(member)
  return string.match(redis.call('HGET', KEYS[2], member) or '', '^(%x+) (%d+) (.*)$')
end

local function lease_of(member)
  return tonumber(redis.call('ZSCORE', KEYS[3], member) or '') or 0
end

-- A number of a report.
local function told_in(report, name)
  return tonumber(string.match(report, '"' .. name .. '":([%d.e+-]+)') or '') or 0
end

-- Renew a lease, unless this was sent before the member took up other terms and came after what it
-- has sent since. Whether it was not. before: the report of this session that stands; nil for a new
-- session. A lease gets no shorter by it than the member may count on, which is not later than the
-- longest ttl that it had lately: with a shorter one of now, the answers that say so may be lost.
local function renew(member, ttl, report, before)
  local lease = now + ttl
  if before then
    if told_in(report, 'turn') < told_in(before, 'turn') then
      return false
    end
    local longest = math.max(told_in(report, 'lease'), told_in(before, 'lease'))
    lease = math.max(lease, math.min(lease_of(member), now + longest))
  end
  redis.call('ZADD', KEYS[3], text(lease), member)
  return true
end

-- A counter; 0 when what stands there was not written here.
local function count(field)
  local written = string.match(redis.call('HGET', KEYS[1], field) or '', '^%d+$')
  return written and #written < 16 and tonumber(written) or 0
end

-- Count one more, where HINCRBY fails on anything that is no number.
local function count_one_more(field)
  local next = count(field) + 1
  redis.call('HSET', KEYS[1], field, string.format('%.0f', next))
  return next
end

-- A fact has changed: the next member that renews is to take a step.
local function changed()
  keep_clock()
  count_one_more('changes')
  redis.call('HSET', KEYS[1], 'due', text(now))
end

local function send(member, message)
  return redis.call('PUBLISH', string.sub(KEYS[5], 1, -8) .. 'to:' .. member, message)
end

-- Until when somebody is at work on the next step, and who; 0 when nobody is.
local function claim()
  local till, member = string.match(redis.call('HGET', KEYS[1], 'claimed') or '', '^(%S+) (.*)$')
  return tonumber(till or '') or 0, member
end

-- Ask a member for the next step, of that session if one is given; whether it receives the message.
local function ask(member, session)
  local there = record(member)
  return there and there == (session or there) and lease_of(member) > now and send(member, 'step') > 0
end

local function claim_for(member, seconds)
  redis.call('HSET', KEYS[1], 'claimed', text(now + seconds) .. ' ' .. member)
end

-- Session and name of the member that decided last.
local function decider()
  return string.match(redis.call('HGET', KEYS[1], 'decider') or '', '^(%x+) (.*)$')
end

-- Whether a member is to take the next step. One at a time does, for speed alone: a claim that is
-- not made good lapses. The member that decided last has the group in memory, so a fact that has
-- just changed is left to it, and a message asks it. If it let its claim lapse, it may be gone.
local function takes(member, seconds, fresh)
  local before = claim()
  if before > now then
    return false
  end
  local session, last = decider()
  local theirs = fresh and before == 0 and session and last ~= member and ask(last, session)
  claim_for(theirs and last or member, seconds)
  return not theirs
end

local function generation()
  local tag = redis.call('HGET', KEYS[1], 'tag') or ''
  return tonumber(string.match(tag, '^(%d+):') or '0'), tag
end

-- How many decisions are known by what they changed.
local KEPT = 512

local function slot(tag)
  return '~' .. string.format('%d', (tonumber(string.match(tag, '^(%d+):')) or 0) % KEPT)
end

-- Session of a member's part of the state, the tag since which its changes are there, and these.
local function part(member)
  local text = redis.call('HGET', KEYS[4], member) or ''
  return string.match(text, '^(%x+) (%S+)(.*)$')
end

-- The parts of the state that changed since a decision; nil when that is not known any more.
local function changed_since(wanted)
  local names, found, _, at = {}, {}, generation()
  for _ = 1, KEPT do
    if at == wanted then
      return names
    end
    local text = redis.call('HGET', KEYS[1], slot(at)) or ''
    local this, before, parts = string.match(text, '^(%S+) (%S+) (.*)$')
    if this ~= at or parts == '*' then
      return nil
    end
    for name in string.gmatch(parts, '%S+') do
      if not found[name] then
        found[name] = true
        names[#names + 1] = name
      end
    end
    at = before
  end
  return nil
end

-- All of the state, without what is known of each decision.
local function whole()
  local found, all = {}, redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) == '=' then
      found[#found + 1] = all[i]
      found[#found + 1] = all[i + 1]
    end
  end
  return found
end

-- Decisions and facts at one instant; nothing of it writes. names: the parts of the state that are
-- wanted; nil for all of them. See read.lua.
local function reading(names)
  local known, run = pcall(server)
  local fields = {}
  for _, name in ipairs(names or {}) do
    fields[#fields + 1] = '=' .. name
    fields[#fields + 1] = redis.call('HGET', KEYS[1], '=' .. name) or ''
  end
  return {
    at,
    redis.call('HGET', KEYS[1], 'tag') or '',
    names and 0 or 1,
    names and fields or whole(),
    count('changes'),
    redis.call('HGET', KEYS[1], 'terms') or '',
    redis.call('HGETALL', KEYS[2]),
    redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES'),
    redis.call('HGET', KEYS[1], 'server') or '',
    known and run or '',
  }
end
