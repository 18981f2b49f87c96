-- Where the ring stands in its history, and how a change of it is announced.

local HISTORY_BYTES = 64 * 1024 * 1024 -- the history keeps fewer events where these are large
local FEWEST_EVENTS = 100

local LAST_EPOCH = 999999999999 -- more digits are read as garbage; after it comes 1

-- Number and tag of the last change, when its history began, and until when no lock may be taken:
-- the times in microseconds, '' and 0 when they are not known.
local function stamp()
  local epoch, tag, more = string.match(stamped or '', '^(%d+) (%x+)(.*)$')
  local began, till = string.match(more or '', '^ (%d+) (%d+)$')
  -- Anything else was not written here: begin a new history, which every reader notices.
  if not epoch or #epoch > 12 or not (began or more == '') then
    return 0, '', '', 0
  end
  return tonumber(epoch), tag, began or '', tonumber(till or 0)
end

local function set_stamp(epoch, tag, began, till)
  stamped = string.format('%d %s %s %.0f', epoch, tag, began, till)
  redis.call('SET', KEYS[2], stamped)
end

local function log(history, ...)
  log_in(KEYS[4], history, ...)
end

-- Number the change, tell the channel, and add it to the history.
-- `growth` is how many members it added to the ring.
local function announce(body, growth, by, history)
  local epoch, prev, began, till = stamp()
  body.v = 1
  body.epoch = epoch % LAST_EPOCH + 1
  body.prev = prev
  body.at = at
  body.members = redis.call('ZCARD', KEYS[1])
  body.was = body.members - growth
  body.tag = string.sub(redis.sha1hex(prev .. cjson.encode(body)), 1, 16)
  local message = cjson.encode(body)
  set_stamp(body.epoch, body.tag, began ~= '' and began or at, till)
  redis.call('PUBLISH', KEYS[1], message)
  -- A start of a node with thousands of points tells of each, and it may start again and again.
  local kept = math.max(FEWEST_EVENTS, math.floor(HISTORY_BYTES / #message))
  log(math.min(tonumber(history), kept), 'kind', body.kind, 'epoch', body.epoch, 'by', by, 'data',
    message)
end
