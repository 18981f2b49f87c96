"""The commands and the Lua of a server in memory do what those of a real server do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import sha1
from typing import Any

import pytest

from hashring.store.command import Command
from hashring.store.lua_scripts import Script
from hashring.store.memory_store import MemoryStore
from tests.conftest import some
from tests.contract.places import RealPlace

KEYS = (b"{k}a", b"{k}b")
MEMBERS = ["", "a", "b", "c", "\xff", "1:n:x"]
SCORES = ["-1", "0", "1", "1.5", "2", "1700000000.123456", "4294967296"]
BOUNDS = [*SCORES, *(f"({score}" for score in SCORES), "-inf", "+inf"]


def run(store: Any, text: str, *arguments: Any) -> Any:
    script = Script("test", "test", text, sha1(text.encode()).hexdigest())
    return store.run(Command(script, KEYS, arguments, lambda raw: raw))


def commands(rng: random.Random) -> Iterator[tuple[str, ...]]:
    """What the scripts ask, in all forms that they use, with few keys and members."""
    while True:
        key = rng.choice(("{k}zset", "{k}zset of few"))
        one, other = (rng.choice(MEMBERS) for _ in range(2))
        scored = [part for _ in range(3) for part in (rng.choice(SCORES), rng.choice(MEMBERS))]
        bounds = [rng.choice(BOUNDS) for _ in range(2)]
        ranks = [str(rng.randrange(-4, 5)) for _ in range(2)]
        limit = ["LIMIT", "0", str(rng.randrange(4))]
        listed = rng.choice([[], ["WITHSCORES"], limit, ["WITHSCORES", *limit]])
        yield rng.choice(
            [
                ("ZADD", key, *scored),
                ("ZADD", key, *scored),
                ("ZADD", key, "XX", "CH", *scored),
                ("ZREM", key, one, other),
                ("ZCARD", key),
                ("ZSCORE", key, one),
                ("ZMSCORE", key, one, other),
                ("ZCOUNT", key, *bounds),
                ("ZRANGE", key, *ranks),
                ("ZRANGE", key, "0", "-1", "WITHSCORES"),
                ("ZRANGEBYSCORE", key, *bounds, *listed),
                ("ZREVRANGEBYSCORE", key, *bounds, *listed),
                ("HSET", "{k}hash", one, "1", other, "2"),
                ("HGET", "{k}hash", one),
                ("HDEL", "{k}hash", one, other),
                ("HLEN", "{k}hash"),
                ("SADD", "{k}set", one),
                ("SREM", "{k}set", one),
                ("SCARD", "{k}set"),
                ("SISMEMBER", "{k}set", one),
                ("SET", "{k}text", one),
                ("SET", "{k}text", one, "NX", "PX", "100000"),
                ("SET", "{k}text", one, "KEEPTTL"),
                ("GET", "{k}text"),
                ("PTTL", "{k}no text"),
                ("PEXPIRE", "{k}text", "100000"),
                ("EXPIRE", "{k}hash", "100000"),
                ("EXPIRE", "{k}no hash", "100000"),
                ("XLEN", "{k}stream"),
                ("DEL", rng.choice(("{k}text", "{k}hash", "{k}set", key))),
            ]
        )


CALL = """
local answer = redis.call(unpack(ARGV))
-- A status, of SET, is a table on a real server.
if type(answer) == 'table' and answer.ok then return 'OK' end
return answer
"""


@pytest.mark.parametrize("seed", some(range(5)))
def test_commands_answer_in_memory_as_on_the_server(real: RealPlace, seed: int) -> None:
    memory, told = MemoryStore(), commands(random.Random(seed))
    for _ in range(500):
        command = next(told)
        assert run(memory, CALL, *command) == run(real.store, CALL, *command), command


VALUES = [
    "return cjson.encode({a = {1, 2.5, 'x'}})",
    r"return cjson.encode({'/\"\\ \8\9\10\12\13\31\127 ä \255'})",
    "return cjson.encode({1e14, 123456789012345678, 0.1, -1, 2^53, 1/3})",
    "return cjson.encode({})",
    "return cjson.encode({true, false})",
    "return cjson.encode(cjson.decode('[null, {\"a\": null}]'))",
    'return cjson.decode(\'{"a": [1, {"b": "\\\\u00e4\\\\/"}]}\').a[2].b',
    "return type(cjson.decode('{\"a\": null}').a)",
    "return tostring(cjson.decode('{\"a\": null}').a == nil)",
    "return tostring(pcall(cjson.encode, {1 / 0}))",
    "return tostring((pcall(cjson.decode, '{\"a\": 1')))",
    "return tostring((pcall(cjson.decode, '')))",
    "return cjson.decode('{\"a\": 1e3}').a",
    "return string.format('%.17g', cjson.decode('[9223372036854775808]')[1])",
    "return cjson.encode(cjson.decode('[1000000000000000000000000000000, -9223372036854775809]'))",
    "return tostring(cjson.decode('[1' .. string.rep('0', 5000) .. ']')[1])",
    "return redis.sha1hex('x')",
    "return tostring((pcall(function() a_global = 1 end)))",
    "return tostring((pcall(function() return a_global end)))",
    "return tostring(redis.call('GET', 'nothing'))",
    "return {1, 2.9, 'x', true, {'y', false}, false, 3}",
    "return {1, nil, 3}",
    "return {KEYS[1], KEYS[2], #KEYS, ARGV[1], #ARGV}",
    "return string.format('%.0f %d %06d %.6f', 2^53, 7, 42, 1 / 3)",
]


@pytest.mark.parametrize("text", VALUES)
def test_lua_computes_in_memory_what_it_does_on_the_server(real: RealPlace, text: str) -> None:
    assert run(MemoryStore(), text, 0.1, b"\xff") == run(real.store, text, 0.1, b"\xff")
