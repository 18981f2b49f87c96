-- What the scripts share that write a decision. Follows _head.lua.

-- If more parts of the state change at once, what is known of an earlier state is of little use.
local MANY = 256

-- Write what a decision changed of the state, and what is known of it; its tag. fields: names and
-- texts of parts in turn; an empty text for one that is no more.
local function write_state(number, phase, fields)
  local _, before = generation()
  local tag = number .. ':' .. at
  keep_clock()
  redis.call('HSET', KEYS[1], 'tag', tag, 'phase', phase)
  local names = {}
  for i = 1, #fields, 2 do
    names[#names + 1] = fields[i]
    if fields[i + 1] == '' then
      redis.call('HDEL', KEYS[1], '=' .. fields[i])
    else
      redis.call('HSET', KEYS[1], '=' .. fields[i], fields[i + 1])
    end
  end
  local parts = #names > MANY and '*' or table.concat(names, ' ')
  redis.call('HSET', KEYS[1], slot(tag), tag .. ' ' .. (before == '' and '-' or before) .. ' ' .. parts)
  return tag
end

-- Note a decision in the history, and tell those who watch. kept: entries of history to keep.
local function announce(tag, number, phase, by, events, kept)
  log_in(KEYS[5], kept, 'generation', number, 'phase', phase, 'by', by, 'events', events)
  redis.call('PUBLISH', KEYS[5], tag)
end
