-- Until when no lock may be taken after a loss, in microseconds of this server's time; now: its time.
--
-- A hold-off ends so long after its history began as locks last. If the history begins later than that
-- from now, the clock was set back since: then the hold-off lasts from now on. One that was over begins
-- again, since nobody knows which it is.
local function hold_off_end(began, till, now)
  local lasts = till - began
  return lasts > 0 and now + lasts < began and now + lasts or till
end
