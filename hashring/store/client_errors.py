"""From a Redis client's exception to this package's.

redis-py and valkey-py have trees of their own with the same names, and a server reports some
refusals only in the text of a ``ResponseError``: so classes are known by name, texts by code.
"""

from __future__ import annotations

import re
from typing import Final

from hashring.errors import RedisRefused, StoreError
from hashring.store.error_remedies import error_and_remedy

# What a server puts around an error inside a script: Redis 6.2 before it, later servers behind it.
_BEFORE: Final = re.compile(r"^Error running script \(call to \w+\): (?:@user_script: ?\d+: )*-?")
_BEHIND: Final = re.compile(r"\.? script: \w+, on @user_script:\d+$")

# Clients take these codes off the text, and make a class of them.
_TAKEN_OFF: Final = {
    "NoPermissionError": "NOPERM",
    "ReadOnlyError": "READONLY",
    "AskError": "ASK",
    "MovedError": "MOVED",
    "OutOfMemoryError": "OOM",
    "BusyLoadingError": "LOADING",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
}


def translate(error: Exception, doing: str) -> StoreError:
    """This package's error for a client's; raise it ``from`` the client's.

    Its text is the same for an error inside a script and outside.

    Args:
        doing: what was being done, for the text: ``"heartbeat of ring 'accounts'"``.
    """
    names = [base.__name__ for base in type(error).__mro__]
    text = _bare(str(error)) or type(error).__name__
    if names[0] in _TAKEN_OFF:
        text = f"{_TAKEN_OFF[names[0]]} {text}"
    kind, remedy = error_and_remedy(names, text)
    if kind is None:
        return RedisRefused(f"{doing}: {type(error).__name__}: {text}")
    return kind(f"{doing}: {text}; {remedy}")


def _bare(text: str) -> str:
    text = _BEFORE.sub("", text.rstrip(". "))
    return _BEHIND.sub("", text).rstrip(". ")
