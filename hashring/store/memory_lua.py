"""Runs the scripts that ship without a Redis: Lua 5.1, which Redis embeds as well, from lupa.

There is one Lua for all servers in memory of a process, since it takes long to compile the scripts.
So there is one lock for all of them as well, and a fork waits until nobody holds it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from math import isfinite
from typing import Any, Final

from hashring.errors import MissingDependencyError
from hashring.monkey_patching import native_lock
from hashring.store.command import Argument
from hashring.store.lua_scripts import Script
from hashring.store.memory_commands import LISTS, Commands

# What Redis gives a script, and a function that runs one. As in Redis, scripts share no globals.
_PRELUDE: Final = b"""
local sha1hex, encode, decode = ...
local commands
redis = {
  sha1hex = sha1hex,
  call = function(name, ...) return commands[name](...) end,
  pcall = function(name, ...)
    local done, answer = pcall(commands[name], ...)
    if done then return answer end
    return {err = tostring(answer)}
  end,
}
cjson = {
  encode = encode,
  decode = function(text)
    -- Most scripts try to decode what is not there; an exception of Python takes much longer.
    if text == '' then error('no JSON') end
    return decode(text)
  end,
}
local function refuse(_, name) error('no script has the global ' .. tostring(name)) end
setmetatable(_G, {__newindex = refuse, __index = refuse})
return function(server, chunk, keys, arguments)
  commands = server
  rawset(_G, 'KEYS', keys)
  rawset(_G, 'ARGV', arguments)
  return chunk()
end
"""

# Each number is a double to Lua, however large.
_LENIENT: Final = json.JSONDecoder(strict=False, parse_int=float)
_NULL: Final = object()
"""What Lua has for the null of JSON: like no other value, and true."""
_ESCAPED: Final = re.compile(rb'[\x00-\x1f"\\/\x7f]')
_SHORT: Final = {
    **{b"%c" % code: rb"\u%04x" % code for code in (*range(32), 127)},
    b"\b": rb"\b",
    b"\t": rb"\t",
    b"\n": rb"\n",
    b"\f": rb"\f",
    b"\r": rb"\r",
    b'"': rb"\"",
    b"\\": rb"\\",
    b"/": rb"\/",
}


memory_lock: Final = native_lock()
"""Held while anything happens in a server in memory, whichever it is. Reentrant."""

if hasattr(os, "register_at_fork"):
    # A forked child has no thread that could let go of the lock, or end a script that had begun.
    os.register_at_fork(
        before=memory_lock.acquire,
        after_in_parent=memory_lock.release,
        after_in_child=memory_lock.release,
    )


class LuaRunner:
    """Lua with what Redis gives its scripts, for any number of servers.

    For who holds :data:`memory_lock`.

    Raises:
        MissingDependencyError: lupa is not installed.
    """

    def __init__(self) -> None:
        try:
            from lupa import lua51  # noqa: PLC0415 - only a store in memory needs it
        except ImportError:
            raise MissingDependencyError("MemoryStore", "lupa", "testing") from None
        self._lua = lua51.LuaRuntime(encoding=None)
        self._chunks: dict[str, Any] = {}
        self._run = self._lua.execute(_PRELUDE, _digest, self._encode, self._decode)

    def commands(self, server: Commands) -> Any:
        """The commands of a server, as Lua calls them; for :meth:`run`."""
        table = self._lua.table()
        for name in vars(Commands):
            if not name.startswith("_"):
                command = getattr(server, name)
                table[name.upper().encode()] = self._listed(command) if name in LISTS else command
        table[b"DEL"], table[b"PUBLISH"] = server.delete, server.publish
        return table

    def run(
        self,
        commands: Any,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
    ) -> Any:
        """Run a script; what a client of Redis would be answered."""
        chunk = self._chunks.get(script.sha)
        if chunk is None:
            chunk = self._chunks[script.sha] = self._lua.compile(script.text.encode())
        table = self._lua.table_from
        return self._answer(self._run(commands, chunk, table(keys), table(map(_sent, arguments))))

    def _listed(self, command: Any) -> Any:
        table = self._lua.table_from
        return lambda *arguments: table(command(*arguments))

    def _answer(self, value: Any) -> Any:
        if isinstance(value, bytes) or value is None:
            return value
        if isinstance(value, bool):
            return 1 if value else None
        if isinstance(value, (int, float)):
            return int(value)
        # Of an array Redis answers what comes before the first nil.
        found: list[Any] = []
        while (part := value[len(found) + 1]) is not None:
            found.append(part if isinstance(part, bytes) else self._answer(part))
        return found

    # --- cjson ------------------------------------------------------------------------------------

    def _decode(self, text: bytes) -> Any:
        return self._from_json(_LENIENT.decode(text.decode("utf-8", "surrogateescape")))

    def _from_json(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape")
        if isinstance(value, list):
            return self._lua.table_from(map(self._from_json, value))
        if isinstance(value, dict):
            return self._lua.table_from(
                {self._from_json(name): self._from_json(part) for name, part in value.items()}
            )
        return _NULL if value is None else value

    def _encode(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return b'"%b"' % _ESCAPED.sub(lambda found: _SHORT[found[0]], value)
        if value is _NULL:
            return b"null"
        if isinstance(value, bool):
            return b"true" if value else b"false"
        if isinstance(value, (int, float)):
            if not isfinite(value):
                raise ValueError("no number of JSON")
            return b"%.14g" % value
        if length := len(value):
            return b"[%b]" % b",".join(self._encode(value[i]) for i in range(1, length + 1))
        parts = (b'"%b":%b' % (name, self._encode(part)) for name, part in value.items())
        return b"{%b}" % b",".join(parts)


@cache
def lua() -> LuaRunner:
    """The process' Lua, for who holds :data:`memory_lock`."""
    return LuaRunner()


def _digest(text: bytes) -> bytes:
    return sha1(text).hexdigest().encode()


def _sent(argument: Argument) -> bytes:
    """An argument as a client sends it."""
    if isinstance(argument, bytes):
        return argument
    return argument.encode() if isinstance(argument, str) else repr(argument).encode()
