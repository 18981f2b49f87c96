-- Renew the locks that this session holds. Never takes one that has expired.
--
-- ARGV  3 session   4... for each lock its token and its ttl in milliseconds
-- Answer  the numbers (from 0) of those that are not this session's any more, then those that
--         another node waits for: number, node, number, node...
local session = ARGV[3]
local lost, wanted = {}, {}
for i = 2, #KEYS do
  local token, holder, _, waiter = read(KEYS[i])
  if token == ARGV[2 * i] and holder == session then
    redis.call('PEXPIRE', KEYS[i], ARGV[2 * i + 1])
    if waiter ~= '' then
      wanted[#wanted + 1] = i - 2
      wanted[#wanted + 1] = waiter
    end
  else
    lost[#lost + 1] = i - 2
  end
end
return {lost, wanted}
