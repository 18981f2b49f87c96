"""The name of this machine."""

from __future__ import annotations

import socket


def host_name() -> str:
    """The name of this machine, with an escape for each byte that is not UTF-8.

    Python makes a lone surrogate of such a byte. Redis takes none, and its Lua reads no JSON that
    has one.
    """
    return socket.gethostname().encode("utf-8", "backslashreplace").decode()
