-- Which run of which server this is, and which history of its data: another one may have lost the
-- last writes of the one before. A server that was a replica in between, and is the primary again,
-- has its old run_id, and a new master_replid. No decision is safe without it, so joining and
-- deciding fail where an access rule refuses INFO.
local function server()
  local function told(section, name)
    local info = redis.call('INFO', section)
    local _, last = string.find(info, name .. ':', 1, true)
    return last and string.match(info, '^%x+', last + 1)
  end
  local run = told('server', 'run_id') or error('INFO server names no run_id')
  return run .. ' ' .. (told('replication', 'master_replid') or '')
end

