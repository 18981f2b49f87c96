"""What the twins of all scripts share: the data they work on, and one run of a script.

The twin of ``<protocol>/<action>.lua`` is the method ``<action>`` in ``<protocol>/twin.py``. It
gets the script's ARGV and answers as Redis does.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, TypeVar, cast

D = TypeVar("D")


class Keyspace:
    """All data of a server in memory, by its kind and the key that it stands for.

    Attributes:
        run: names the run of the server, as ``run_id`` does in Redis; another one after$
            :meth:`restore`.
    """

    def __init__(self) -> None:
        self._data: dict[tuple[type[Any], bytes], Any] = {}
        self.run = 0

    def of(self, kind: type[D], key: bytes = b"") -> D:
        """The data of that kind under that key; made when there is none."""
        found = self._data.get((kind, key))
        if found is None:
            found = self._data[kind, key] = kind()
        return cast("D", found)

    def wipe(self) -> None:
        """Forget everything."""
        self._data.clear()

    def copy(self) -> object:
        """All data as it is now, for :meth:`restore`."""
        return deepcopy(self._data)

    def restore(self, copy: object, *, same_run: bool) -> None:
        """Go back to a copy, in another run of the server or in the same."""
        self._data = deepcopy(cast("dict[tuple[type[Any], bytes], Any]", copy))
        self.run += not same_run


class Twin:
    """One run of a script in memory.

    Args:
        keyspace: the server's data.
        keys: the script's KEYS.
        now: the server's time, in seconds since 1970.
        publish: sends a payload to a channel; to how many that listen.
    """

    def __init__(
        self,
        keyspace: Keyspace,
        keys: tuple[bytes, ...],
        now: float,
        publish: Callable[[bytes, bytes], int],
    ) -> None:
        self.keyspace = keyspace
        self.keys = keys
        self.now = now
        self.publish = publish

    def at(self) -> bytes:
        """The server's time in microseconds."""
        return b"%d" % round(self.now * 1e6)
