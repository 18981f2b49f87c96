-- Renew a lease, report, and learn where the group stands. See beat() in commands.py.
--
-- ARGV  1 member  2 session  3 ttl  4 report  5 generation seen
--       6 tag of the decision that changed its part last, as far as it knows, or of one since then;
--         "-" for none
--       7 seconds a claim lasts; see takes()
--       8 how many members are to wait for the next step
--       9 the decision that this member's decider knows; empty when it is to read by itself
--       10 seconds for which a step is left to others before this member takes it
--       11 the group's terms as this member knows them
-- Returns {'gone'} when there is no such session or its lease has ended: it must join anew.
-- Else {'ok', now, tag, phase, due, part, changes, wait, reading, terms}. due: 1 if this member is to take
-- the next step, 2 if another is to take one that this report asks for, else 0. part: the tag of the
-- decision that changed its part last. changes: those since the known one, a line each, or nil if it
-- has to read the state. wait: the number of seconds after which this member is to ask again, since
-- a step is due then; empty if others do. reading: for a member that is to take the step, the answer
-- of read.lua; nil for others, and if its decider has to read the whole state. terms: the group's, if
-- they are written otherwise than this member's; else nil.

local session, joined, report = record(ARGV[1])
if session ~= ARGV[2] or lease_of(ARGV[1]) <= now then
  return {'gone'}
end
local current, tag = generation()
if current < tonumber(ARGV[5]) then
  return {'gone'}
end
-- A lease that stands needs no more memory.
keep_clock_of_group(tag)
local in_order = renew(ARGV[1], tonumber(ARGV[3]), ARGV[4], report)
-- Whether a report asks for a step. A word that is taken back was heard, or is not true any more.
-- Which generation a member acts on is asked for when a handoff is overdue, and then a step is due
-- anyway; by itself it changes nothing. For how long a member may count on its lease matters when it
-- gets a seat, and is read then. Loads are looked at now and then.
local function news(before, after)
  for _, words in ipairs({'"released":', '"drained":'}) do
    if string.find(after, words .. '{}', 1, true) then
      before = string.gsub(before, words .. '%b{}', words .. '{}')
    end
  end
  for _, quiet in ipairs({'"seen":%d+', '"turn":%d+', '"lease":[%d.e+-]+', '"loads":%b{}'}) do
    before, after = string.gsub(before, quiet, ''), string.gsub(after, quiet, '')
  end
  return before ~= after
end
local told = false
if in_order and report ~= ARGV[4] then
  redis.call('HSET', KEYS[2], ARGV[1], session .. ' ' .. joined .. ' ' .. ARGV[4])
  if news(report, ARGV[4]) then
    changed()
    told = true
  end
end
-- Redis time since which a step is due. A lease that was renewed does not end: the set of leases
-- knows, and no step need look. The next commit takes those out of it that have ended.
local function due_since()
  local since = number('due', math.huge)
  if since <= now then
    return since
  end
  local lapsed = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', text(now), 'WITHSCORES', 'LIMIT', 0, 1)
  return tonumber(lapsed[2] or '') or math.huge
end
local due = 0
local till = claim()
if till <= now and math.max(due_since(), till) + tonumber(ARGV[10]) <= now then
  due = takes(ARGV[1], tonumber(ARGV[7]), told) and 1 or 0
end
if told and due == 0 then
  due = 2
end
local names = due == 1 and ARGV[9] ~= '' and changed_since(ARGV[9])
-- A part that was written for an earlier session of this name is none of this one's.
local whose, since, changes = part(ARGV[1])
local last = '-'
if whose == ARGV[2] then
  last = string.match(changes, '.*\n(%S+) ') or since
end
if ARGV[6] == tag and last ~= tag then
  -- Somebody deleted it, or wrote into it. The member knows the decision that stands: it has missed
  -- nothing.
  redis.call('HSET', KEYS[4], ARGV[1], ARGV[2] .. ' ' .. tag)
  last, changes = tag, ''
elseif whose ~= ARGV[2] then
  -- If it knew one, somebody has deleted that: what it did not know of it stands in the state. So it
  -- does if what is there cannot be read.
  local unreadable = not whose and redis.call('HGET', KEYS[4], ARGV[1])
  changes = ARGV[6] == '-' and not unreadable and ''
elseif since ~= ARGV[6] then
  local _, line = string.find(changes, '\n' .. ARGV[6] .. ' ', 1, true)
  local after = line and (string.find(changes, '\n', line, true) or #changes + 1)
  changes = after and string.sub(changes, after)
end
-- A few members wait for the time of the next step. All of them would come at the same moment.
local wait = ''
local due_at = number('due', math.huge)
if due_at > now and due_at < math.huge then
  local which, watchers = string.match(redis.call('HGET', KEYS[1], 'watched') or '', '^(%S+) (%d+)$')
  watchers = which == text(due_at) and tonumber(watchers) or 0
  -- A member that asks this shortly before may be one of them, and early.
  if watchers < tonumber(ARGV[8]) or due_at - now < tonumber(ARGV[7]) then
    redis.call('HSET', KEYS[1], 'watched', text(due_at) .. ' ' .. string.format('%d', watchers + 1))
    wait = text(due_at - now)
  end
end
local terms = redis.call('HGET', KEYS[1], 'terms')
return {
  'ok', at, tag, redis.call('HGET', KEYS[1], 'phase') or 'Ready', due, last, changes or false, wait,
  names and reading(names) or false, terms ~= ARGV[11] and terms,
}
