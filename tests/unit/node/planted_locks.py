"""Faults of the scripts about locks, as edits of them."""

from __future__ import annotations

RELEASE_OF_ANY_HOLDER = ("if token == ARGV[i + 1] and session == ARGV[3] then", "if token then")
RELEASE_UNDER_ANY_TOKEN = (
    "if token == ARGV[i + 1] and session == ARGV[3] then",
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
TOKENS_OF_THE_COUNTER_ALONE = ("math.max(known < 9e15 and known + 1 or 0, now)", "known + 1")
LOCKS_TAKEN_WHILE_NOBODY_MAY = (
    "if began ~= ARGV[9] then\n  held_off = -1\nend\n",
    "held_off = 0\n",
)
LOCKS_PUT_BACK_AT_ANY_TIME = ("may_put_back and to_put_back[number] then", "may_put_back then")
