"""Every change of every lock that Redis made, in order, as MONITOR shows it."""

from __future__ import annotations

import re
import socket
import threading
from itertools import pairwise

from redis import Redis

from hashring.store.embedded_server import RedisServer
from hashring.store.ring.key_names import RingKeys

_LINE = re.compile(rb"\+([0-9.]+) \[\d+ (\S+)\] (.*)")
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_END = b"the end of the test"

# Redis counts expiry from when it began the script, and MONITOR from when it made the call.
_SLACK = 0.05


class Transitions:
    """Records while the block runs; :meth:`check` then plays them again.

    Args:
        server: the server.
        keys: the ring's keys.
    """

    def __init__(self, server: RedisServer, keys: RingKeys) -> None:
        self._server = server
        self._keys = keys
        self._calls: list[tuple[float, list[bytes]]] = []
        self.tokens: dict[bytes, list[int]] = {}

    def __enter__(self) -> Transitions:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(self._server.socket))
        self._socket.sendall(b"MONITOR\r\n")
        self._stream = self._socket.makefile("rb")
        assert self._stream.readline() == b"+OK\r\n"
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with Redis.from_url(self._server.url) as client:
            client.echo(_END)
        self._thread.join()
        self._stream.close()
        self._socket.close()

    def _read(self) -> None:
        for line in self._stream:
            match = _LINE.match(line)
            if match is None:
                continue
            words = _WORD.findall(match[3])
            if words[-1] == _END:
                return
            if match[2] == b"lua":
                self._calls.append((float(match[1]), words))

    def check(self, limits: dict[str, int | None]) -> None:
        """Whether nothing happened that must not: with each step of Redis.

        Args:
            limits: how many locks each node may have at most.
        """
        locks: dict[bytes, tuple[int, bytes, str, float]] = {}
        newest = 0
        for (at, (command, *words)), (_, after) in pairwise([*self._calls, (0.0, [b""])]):
            if not words or not words[0].startswith(self._keys.locks):
                continue
            name = words[0]
            known = locks.get(name)
            if known is not None and known[3] <= at:
                known = None
            if command == b"SET" and words[2] == b"NX":
                if after[0] == b"GET" and after[1] == name:
                    continue  # It was not set: the script looks who has it.
                token, session, node = words[1].decode().split(" ", 2)
                assert known is None or known[3] <= at + _SLACK, f"{name!r} was {known}"
                assert int(token) > newest, "tokens grow"
                newest = int(token)
                locks[name] = newest, session.encode(), node, at + int(words[4]) / 1000
                self.tokens.setdefault(name, []).append(newest)
            elif command == b"PEXPIRE":
                assert known is not None, f"{name!r} is renewed, and was not held"
                locks[name] = (*known[:3], at + int(words[1]) / 1000)
            elif command == b"DEL":
                locks.pop(name, None)
            standing: dict[str, set[bytes]] = {}
            for lock, (_, _, node, expires) in locks.items():
                if expires > at + _SLACK:
                    standing.setdefault(node, set()).add(lock)
            for node, own in standing.items():
                limit = limits.get(node)
                assert limit is None or len(own) <= limit, f"{node} holds {len(own)}"
