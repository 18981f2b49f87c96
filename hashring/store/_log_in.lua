-- Add an entry to a stream, and keep about so many. One that somebody gave the last possible id takes
-- no more: it is begun anew, or no change that it tells of could be made whole from then on.
local function log_in(stream, kept, ...)
  local answer = redis.pcall('XADD', stream, 'MAXLEN', '~', kept, '*', ...)
  if type(answer) == 'table' then
    if string.find(answer.err, 'exhausted', 1, true) then
      redis.call('DEL', stream)
    end
    redis.call('XADD', stream, 'MAXLEN', '~', kept, '*', ...)
  end
end
