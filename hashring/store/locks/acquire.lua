-- Take those of the locks that are free, up to a number, and wait for others that are not.
--
-- KEYS  4... locks, and behind them {<ring>}:ended, see ring/_head.lua: a call that was long on its
--       way must not take locks for a session that has ended, since nobody would let go of them
-- ARGV  3 node   4 session   5 ttl in milliseconds   6 how many to take and wait for at most
--       7 how many of the locks, the first ones, to wait for when another session has them
--       8 how many of those, the first ones, this node waits for already: they keep their places,
--         while the others wait for what is left after all that is free
--       9 when the history began that the node knows
-- Answer  a letter for each lock, the first new token, what the letters ask for, in order, and for
--         how many milliseconds no lock may be taken, -1 when the node knows another history:
--         n  new: it is this session's now; the tokens of these count up from the first
--         a  it was this session's already: its token follows
--         o  another session's: holder and milliseconds left follow
--         w  the same, and this node waits for it
--         f  it would have been one too many, or the session has ended; and it is free (or this
--            session's: a call that was long on its way must not take away what has been taken since)
--         h  it is free, and may not be taken now: Redis lost the locks, or the newest of them, and
--            somebody may still believe in this one
--
-- A token is greater than all before it, on this key and on every other: it counts up, and never
-- falls behind this server's time in microseconds, so that it goes on growing even when the
-- counter was lost with a failover or a restart without persistence.
local call, format = redis.call, string.format
local node, session, ttl, room = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local time = call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
-- Time gets to 9e15 in the year 2255. More was not written here, and Lua counts to 2^53 only.
local known = tonumber(string.match(call('GET', KEYS[1]) or '', '^%d+$') or 0)
local first = math.max(known < 9e15 and known + 1 or 0, now)
local next_token, holder_part = first, ' ' .. session .. ' ' .. node

local ended = tonumber(call('ZSCORE', KEYS[#KEYS], session) or 0)
if ended * 1000000 > now then
  room = 0
end

local awaited, kept = tonumber(ARGV[7]), tonumber(ARGV[8])
local letters, details, others = {}, {}, {}
local held_off = held_off_for(ARGV[9], now) or -1

local function wait(i, holder, waiter, value)
  room = room - 1
  letters[i - 3] = 'w'
  if waiter ~= node then
    call('SET', KEYS[i], string.match(value, '^[^\n]*') .. '\n' .. node, 'KEEPTTL')
    tell(holder, 'wanted:' .. node, KEYS[i])
    if waiter ~= '' then
      -- One of the two has not heard yet whose key it is.
      tell(waiter, 'replaced', KEYS[i])
    end
  end
end

for i = 4, #KEYS - 1 do
  local lock, letter = KEYS[i], held_off == 0 and 'f' or 'h'
  if room > 0 and held_off == 0 and call('SET', lock, format('%.0f', next_token) .. holder_part, 'NX', 'PX', ttl) then
    letter = 'n'
    next_token = next_token + 1
    room = room - 1
  else
    local token, holder_session, holder, waiter, value = read(lock)
    if token and holder_session == session and room > 0 then
      -- The answer to an earlier call was lost.
      call('PEXPIRE', lock, ttl)
      letter = 'a'
      details[#details + 1] = token
      room = room - 1
    elseif token and holder_session == session then
      letter = 'f'
    elseif token then
      local left = call('PTTL', lock)
      letter = 'o'
      details[#details + 1] = holder
      -- What never expires is looked at again as well, after a ttl.
      details[#details + 1] = left < 0 and tonumber(ttl) or left
      if value and i - 3 <= awaited then
        others[#others + 1] = {i, holder, waiter, value}
      end
    end
  end
  letters[i - 3] = letter
  if i - 3 <= kept and #others > 0 and room > 0 then
    wait(unpack(table.remove(others)))
  end
end
if next_token > first then
  call('SET', KEYS[1], format('%.0f', next_token - 1))
end

-- Wait for no more than could be taken.
for n = 1, math.min(room, #others) do
  wait(unpack(others[n]))
end
return {table.concat(letters), first, details, held_off}
