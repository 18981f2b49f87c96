-- Write a decision, if nobody was faster. See commit() in commands.py.
--
-- ARGV  1 tag the decision is based on  2 generation; empty when nothing was decided
--       3 how many fields of the state are written
--       4 phase  5 Redis time of the next step, empty for never  6 changes as they were read
--       7 events  8 who decided  9 entries of history to keep  10 terms, empty when unchanged
--       11 seconds for which who decided claims the next step, if one is due at once; 0 for not
--       12 Redis time at which the facts were read; 0 if ended leases are left to the next step
--       13 the run of Redis they were read from  14 the run of Redis to record  15 how many parts  16 how many members are dismissed
--       17 other members that are to ask when the next step is due, one a line
--       18 seconds that owners have for the handoffs that begin
--       then for each field of the state: name, text; empty for one that is no more
--       then for each member whose part changes: member, session, 1 when it had none, change
--       then: members that are dismissed, with the session each had
--       then: members that have left, with the session each had
-- Returns {'conflict', 1 when another member is at work on the next step}, or {'ok', now, 1 when
-- another step is due at once}.

-- Bytes of earlier changes of a part that are kept, for a member that asks now and then. One that
-- has missed more reads the state.
local ROOM = 2048

-- The deadline of a handoff that begins, as texts have it: it counts from now on, and not from when
-- the facts were read. The decision may have taken long since. No name is written so.
local DEADLINE = '"\\u0000deadline"'
local deadline = text(now + tonumber(ARGV[18]))

local function with_deadlines(json)
  return (string.gsub(json, DEADLINE, deadline))
end

local function write_part(member, session, fresh, change)
  local whose, since, changes = part(member)
  if fresh == '1' then
    since, changes = '-', ''
  elseif whose ~= session then
    since, changes = '?', ''
  end
  while #changes > ROOM do
    since, changes = string.match(changes, '^\n(%S+) [^\n]*(.*)$')
    if not since then
      -- Somebody else wrote it.
      since, changes = '?', ''
    end
  end
  redis.call('HSET', KEYS[4], member, session .. ' ' .. since .. changes .. '\n' .. change)
end

local goes_on = tonumber(ARGV[11]) > 0
local current, tag = generation()
-- Who had no lease then may have renewed it since the clock was set back.
local of_later = tonumber(ARGV[12]) > now
if tag ~= ARGV[1] or server() ~= ARGV[13] or of_later then
  local till, member = claim()
  return {'conflict', till > now and member ~= ARGV[8] and 1 or 0}
end
begin_to_write()
if ARGV[2] ~= '' then
  local last_field = 18 + 2 * tonumber(ARGV[3])
  local last_view = last_field + 4 * tonumber(ARGV[15])
  local last_dismissed = last_view + 2 * tonumber(ARGV[16])
  local fields = {}
  for i = 19, last_field, 2 do
    fields[#fields + 1] = ARGV[i]
    fields[#fields + 1] = with_deadlines(ARGV[i + 1])
  end
  tag = write_state(ARGV[2], ARGV[4], fields)
  redis.call('HSET', KEYS[1], 'server', ARGV[14])
  if ARGV[10] ~= '' then
    redis.call('HSET', KEYS[1], 'terms', ARGV[10])
  end
  for i = last_field + 1, last_view, 4 do
    write_part(ARGV[i], ARGV[i + 1], ARGV[i + 2], tag .. ' ' .. with_deadlines(ARGV[i + 3]))
  end
  for i = last_view + 1, #ARGV, 2 do
    -- A name that came back meanwhile, as another session, keeps its entry.
    local session = record(ARGV[i])
    if session == ARGV[i + 1] and (i <= last_dismissed or lease_of(ARGV[i]) <= now) then
      redis.call('HDEL', KEYS[2], ARGV[i])
      redis.call('ZREM', KEYS[3], ARGV[i])
    end
    -- Of a dismissed one whose entry is gone or cannot be read, this alone names the process that may
    -- join anew while the lease stands.
    if session == ARGV[i + 1] or not session and i > last_dismissed then
      redis.call('HDEL', KEYS[4], ARGV[i])
    end
  end
  announce(tag, ARGV[2], ARGV[4], ARGV[8], ARGV[7], ARGV[9])
  -- Whom it concerns; the others learn of it with their next renewal. A member whose decider this is
  -- knows it by the answer.
  for i = last_field + 1, last_view, 4 do
    if not (goes_on and ARGV[i] == ARGV[8]) then
      send(ARGV[i], tag)
    end
  end
  for i = last_view + 1, last_dismissed, 2 do
    send(ARGV[i], tag)
  end
  for member in string.gmatch(ARGV[17], '[^\n]+') do
    send(member, tag)
  end
end
-- Who had no lease when the facts were read is gone. A lease that ends later makes the next step due
-- by itself, whatever the clock does: it stands until a commit takes it out.
local until_then = text(math.min(now, tonumber(ARGV[12])))
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', until_then)) do
  redis.call('HDEL', KEYS[2], member)
  redis.call('HDEL', KEYS[4], member)
  redis.call('ZREM', KEYS[3], member)
end
local due = ARGV[5]
if count('changes') ~= tonumber(ARGV[6]) then
  -- A fact that changed since it was read is still to be acted on.
  due = text(now)
end
local again = due ~= '' and tonumber(due) <= now
local session = goes_on and record(ARGV[8])
if session then
  redis.call('HSET', KEYS[1], 'decider', session .. ' ' .. ARGV[8])
end
if again and goes_on then
  -- Who decided goes on, so nobody else has to.
  redis.call('HSET', KEYS[1], 'claimed', text(now + tonumber(ARGV[11])) .. ' ' .. ARGV[8])
else
  redis.call('HDEL', KEYS[1], 'claimed')
end
if due == '' then
  redis.call('HDEL', KEYS[1], 'due')
else
  redis.call('HSET', KEYS[1], 'due', due)
end
return {'ok', at, again and 1 or 0}
