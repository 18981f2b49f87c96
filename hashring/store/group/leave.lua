-- Leave. See leave() in commands.py.
--
-- ARGV  1 member  2 session; empty for any  3 seconds a claim lasts; see takes()
-- Returns 0 when the member was not there, 2 when nobody else takes the step that is due now, else 1.

-- Of the members that renewed last, how many are asked for the step.
local MOST = 4

-- Whether another member takes the next step: one that is at work sees that there is one more; else
-- the one that decided last is asked, or one that renewed a short time ago.
local function others_take_it()
  local till, member = claim()
  if till > now and member ~= ARGV[1] then
    return true
  end
  local session, last = decider()
  if session and last ~= member and ask(last, session) then
    claim_for(last, tonumber(ARGV[3]))
    return true
  end
  local newest = redis.call('ZRANGE', KEYS[3], -MOST, -1)
  for i = #newest, 1, -1 do
    -- One that let its claim lapse may be gone.
    if newest[i] ~= member and ask(newest[i]) then
      claim_for(newest[i], tonumber(ARGV[3]))
      return true
    end
  end
  redis.call('HDEL', KEYS[1], 'claimed')
  return false
end

local session = record(ARGV[1])
if not session or (ARGV[2] ~= '' and session ~= ARGV[2]) then
  return 0
end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
changed()
return others_take_it() and 1 or 2
