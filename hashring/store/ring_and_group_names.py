"""Check the names of rings, groups and challenges; begin the names of their keys with them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from hashring.errors import ConfigError

MAX_NAME_BYTES: Final = 512

WORDS_BEFORE_ANYTHING: Final = frozenset({b"lock", b"to"})
"""What precedes a locked key, and a node or member, in the names of keys and channels: these may be
anything, so they may continue as any name does."""


def name_bytes(kind: str, name: Any) -> bytes:
    """The name as Redis has it.

    Args:
        kind: what has the name: ``"ring"``, ``"group"`` or ``"challenge"``.

    Raises:
        ConfigError: the name is neither ``str`` nor ``bytes``, is empty, too long, or no UTF-8.
    """
    if not isinstance(name, str | bytes) or not name:
        raise ConfigError(kind, name, f"a {kind}'s name is a non-empty str")
    try:
        found = name.encode() if isinstance(name, str) else name
        # No command and no page could name it, nor find it.
        found.decode()
    except UnicodeEncodeError:
        raise ConfigError(kind, name, "cannot be encoded as UTF-8") from None
    except UnicodeDecodeError:
        raise ConfigError(kind, name, f"is not UTF-8; a {kind}'s name is text") from None
    if len(found) > MAX_NAME_BYTES:
        raise ConfigError(
            kind,
            name[:40],
            f"begins a name of {len(found)} bytes; at most {MAX_NAME_BYTES} are allowed",
        )
    return found


def tagged(
    kind: str,
    name: Any,
    *,
    words: Collection[bytes] = (),
    last_words: Collection[bytes] = (),
) -> bytes:
    """What the names of all keys begin with: the name in braces, unless it has a hash tag.

    No two names of a kind begin with the same, and nothing that follows makes the keys or channels
    of one into those of another: names with which that could happen are refused.

    Args:
        words: what may not be a word of the name, besides :data:`WORDS_BEFORE_ANYTHING`. Words are
            separated by colons, and begin after the hash tag.
        last_words: what may not be its last word.

    Raises:
        ConfigError: see :func:`name_bytes`; or the name has braces that are no hash tag, which
            would scatter its keys over a cluster; or it could share keys with another name.
    """
    found = name_bytes(kind, name)
    if b"{" not in found and b"}" not in found:
        return b"{%b}" % found
    opening = found.find(b"{")
    closing = found.find(b"}", opening + 1)
    if opening < 0 or closing <= opening + 1:
        raise ConfigError(
            kind,
            name,
            f"braces in a {kind}'s name mark a Redis Cluster hash tag, as in '{{team}}:accounts'; "
            f"these do not: leave them out",
        )
    if opening == 0 and closing == len(found) - 1 and found.count(b"{") == 1:
        plain = found[1:-1].decode("utf-8", "backslashreplace")
        raise ConfigError(
            kind,
            name,
            f"would have the keys of the {kind} {plain!r}; leave out the braces, or add a name to "
            f"the hash tag, as in '{{team}}:accounts'",
        )
    own = found[closing + 1 :].split(b":")[1:]
    for word in own:
        if word in WORDS_BEFORE_ANYTHING or word in words:
            raise _shares_keys(kind, name, word)
    if own and own[-1] in last_words:
        raise _shares_keys(kind, name, own[-1])
    return found


def _shares_keys(kind: str, name: Any, word: bytes) -> ConfigError:
    return ConfigError(
        kind,
        name,
        f"could share a key in Redis with another name, because of {word.decode()!r} after its "
        f"hash tag; use another word",
    )
