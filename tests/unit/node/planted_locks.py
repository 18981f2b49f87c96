"""Faults of the scripts about locks, as edits of them."""

from __future__ import annotations

RELEASE_OF_ANY_HOLDER = ("if token == ARGV[i] and session == ARGV[3] then", "if token then")
RELEASE_UNDER_ANY_TOKEN = (
    "if token == ARGV[i] and session == ARGV[3] then",
    "if session == ARGV[3] then waiter = ''",
)
_RENEWED = "  local value = try('GET', lock)\n"
RENEWAL_THAT_MAKES_AN_EXPIRED_LOCK_ANEW = (
    _RENEWED,
    f"  call('SET', lock, mine .. '?', 'PX', ttl)\n{_RENEWED}",
)
RENEWAL_THAT_MAKES_A_FREE_LOCK_ANEW = (
    _RENEWED,
    f"  call('SET', lock, mine .. '?', 'NX', 'PX', ttl)\n{_RENEWED}",
)
LATE_CALL_THAT_FREES_WHAT_IT_HAS_NO_PLACE_FOR = (
    "  letter = 'f'\n    elseif token then",
    "  letter = 'f'\n      call('DEL', lock)\n    elseif token then",
)
LOCKS_TAKEN_FOR_A_SESSION_THAT_HAS_ENDED = ("if ended * 1000000 > now then", "if false then")
TOKENS_OF_THE_COUNTER_ALONE = ("math.max(known < 9e15 and known + 1 or 0, now)", "known + 1")
LOCKS_TAKEN_WHILE_NOBODY_MAY = (
    "local held_off = held_off_for(ARGV[9], now) or -1\n",
    "local held_off = 0\n",
)
LOCKS_TAKEN_IN_THE_DATA_OF_ANOTHER_SERVER = (
    " or (known and redis.call('GET', KEYS[3]) ~= lineage())",
    "",
)
ANOTHER_SERVER_WITHOUT_ANOTHER_HISTORY = (
    "  began = at\n  set_stamp(epoch, tag, began, till)\n",
    "",
)
ANOTHER_SERVER_THAT_HOLDS_NOBODY_OFF = (
    "  if noted_server or redis.pcall('GET', KEYS[14]) then\n",
    "  if false then\n",
)
ANY_LOCK_IN_THE_HISTORY = ("ARGV[3] and held_off_for(ARGV[3], 0) and 1 or 0", "1")
LOCKS_PUT_BACK_AT_ANY_TIME = ("may_put_back and to_put_back[number] then", "may_put_back then")
WAITER_THAT_IS_REPLACED_AND_NOT_TOLD = (
    "    if waiter ~= '' then\n      --",
    "    if false then\n      --",
)
