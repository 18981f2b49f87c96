"""Names of rings and groups as the beginnings of key names that share a hash slot."""

from __future__ import annotations

from typing import Any, Final

from hashring.errors import ConfigError

MAX_NAME_BYTES: Final = 512


def name_bytes(kind: str, name: Any) -> bytes:
    """The name as Redis has it.

    Args:
        kind: what has the name: ``"ring"`` or ``"group"``.

    Raises:
        ConfigError: the name is neither ``str`` nor ``bytes``, is empty, too long, or cannot be
            encoded.
    """
    if not isinstance(name, str | bytes) or not name:
        raise ConfigError(kind, name, f"a {kind}'s name is a non-empty str")
    try:
        found = name.encode() if isinstance(name, str) else name
    except UnicodeEncodeError:
        raise ConfigError(kind, name, "cannot be encoded as UTF-8") from None
    if len(found) > MAX_NAME_BYTES:
        raise ConfigError(
            kind,
            name[:40],
            f"begins a name of {len(found)} bytes; at most {MAX_NAME_BYTES} are allowed",
        )
    return found


def tagged(kind: str, name: Any) -> bytes:
    """What the names of all keys begin with: the name in braces, unless it has a hash tag.

    Raises:
        ConfigError: see :func:`name_bytes`; or the name has braces that are no hash tag, which
            would scatter its keys over a cluster.
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
    return found
