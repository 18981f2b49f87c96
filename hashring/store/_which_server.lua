-- Which server's data these are: others may lack the last writes of those before.

local function info(section, name)
  local text = redis.call('INFO', section)
  local _, last = string.find(text, name .. ':', 1, true)
  return last and string.match(text, '^%x+', last + 1)
end

-- Which run of which server this is, and which history of its data: another one may have lost the
-- last writes of the one before. A server that was a replica in between, and is the primary again,
-- has its old run_id, and a new master_replid. No decision is safe without it, so joining and
-- deciding fail where an access rule refuses INFO.
local function server()
  local run = info('server', 'run_id') or error('INFO server names no run_id')
  return run .. ' ' .. (info('replication', 'master_replid') or '')
end

-- The same in a third of the time, for scripts that run once for a key: a primary has a new
-- master_replid in each of its runs, and since it became one.
local function lineage()
  return info('replication', 'master_replid') or info('server', 'run_id')
    or error('INFO names neither master_replid nor run_id')
end
