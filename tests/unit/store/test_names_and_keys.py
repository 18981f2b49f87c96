"""Which names rings, groups and lease challenges may have: no two share a key or a channel."""

from __future__ import annotations

from dataclasses import astuple
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hashring import ConfigError
from hashring.store.faithful_challenge.commands import faithful_keys
from hashring.store.group.key_names import group_keys
from hashring.store.lease_challenge.commands import challenge_keys
from hashring.store.ring.key_names import ring_keys
from tests.conftest import LONG

KINDS = ("ring", "group", "challenge")
PIECES = (
    *("a", "b", ":", ":", "{", "}", "{}", "{a}", "{b}", "lock", "to", "group", "challenge"),
    *("epoch", "points", "full-points", "token", "state", "control", "table", "grabs"),
)
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)


class Written(NamedTuple):
    """Keys, or channels.

    Attributes:
        names: those that are known.
        beginnings: what others begin with, which may continue in any way.
    """

    names: set[bytes]
    beginnings: set[bytes]

    def shares(self, other: Written) -> bool:
        """Whether a name may be one of both."""
        return (
            not self.names.isdisjoint(other.names)
            or any(name.startswith(tuple(other.beginnings)) for name in self.names)
            or any(name.startswith(tuple(self.beginnings)) for name in other.names)
            or any(a.startswith(b) or b.startswith(a) for a in self.beginnings for b in other[1])
        )


def written(kind: str, name: str) -> tuple[Written, Written]:
    """The keys and the channels of a name.

    Raises:
        ConfigError: the name is refused.
    """
    if kind == "ring":
        ring = ring_keys(name)
        return (
            Written({*astuple(ring)} - {ring.locks}, {ring.lock(b"")}),
            Written({ring.channel}, {ring.node_channel("")}),
        )
    if kind == "group":
        group = group_keys(name)
        return (
            Written({*astuple(group)}, set()),
            Written({group.channel}, {group.member_channel("")}),
        )
    own, faithful = challenge_keys(name), faithful_keys(name)
    return (
        Written({own.table, faithful.allocation, faithful.grab}, set()),
        Written({own.told, faithful.grabs, faithful.allocated}, set()),
    )


def accepted(kind: str, name: str) -> tuple[Written, Written]:
    try:
        return written(kind, name)
    except ConfigError:
        assume(False)
        raise


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, str, str, str]:
    """Two kinds with a name each; the second name is often cut from a key of the first."""
    kind, other = draw(st.sampled_from(KINDS)), draw(st.sampled_from(KINDS))
    name = draw(TEXTS)
    if draw(st.booleans()):
        return kind, name, other, draw(TEXTS)
    keys, channels = accepted(kind, name)
    key = draw(st.sampled_from(sorted({*keys[0], *keys[1], *channels[0], *channels[1]}))).decode()
    cut = key[: draw(st.integers(1, len(key)))]
    return kind, name, other, cut + draw(st.sampled_from(("", *PIECES)))


@settings(max_examples=1000 if LONG else 300)
@given(pairs())
@example(("ring", "acc", "ring", "{acc}"))
@example(("group", "acc", "group", "{acc}"))
@example(("challenge", "acc", "challenge", "{acc}"))
@example(("ring", "acc", "ring", "{acc}:points"))
@example(("ring", "{a}b", "ring", "{a}b:full-points"))
@example(("ring", "acc", "ring", "{acc}:lock"))
@example(("ring", "acc", "group", "{acc}:lock:x"))
@example(("ring", "acc", "challenge", "{acc}:lock:x"))
@example(("group", "acc", "ring", "{acc}:group"))
@example(("group", "acc", "group", "{acc}:group:to:a"))
@example(("challenge", "acc", "ring", "{acc}:challenge:table"))
def test_two_names_never_share_a_key_or_a_channel(pair: tuple[str, str, str, str]) -> None:
    kind, name, other_kind, other = pair
    assume((kind, name) != (other_kind, other))
    keys, channels = accepted(kind, name)
    other_keys, other_channels = accepted(other_kind, other)
    assert not keys.shares(other_keys)
    assert not channels.shares(other_channels)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("acc", b"{acc}"),
        ("acc:lock:x", b"{acc:lock:x}"),
        ("{team}:acc", b"{team}:acc"),
        ("acc{team}", b"acc{team}"),
        ("a{b}c", b"a{b}c"),
        ("{a}{b}", b"{a}{b}"),
        ("}{a}", b"}{a}"),
        ("{team}lock", b"{team}lock"),
    ],
)
def test_keys_begin_with_a_hash_tag(kind: str, name: str, first: bytes) -> None:
    keys, _ = written(kind, name)
    assert all(key.startswith(first + b":") for key in keys.names - {name.encode()})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{acc}", "='{acc}': would have the keys of the {kind} 'acc'; leave out the braces, or"),
        ("{team}:lock", "='{team}:lock': could share a key in Redis with another name, because of"),
        ("{team}:a:to:b", "because of 'to' after its hash tag; use another word"),
        ("{}", "='{}': braces in a {kind}'s name mark a Redis Cluster hash tag"),
        ("}a{", "='}a{': braces in a {kind}'s name mark a Redis Cluster hash tag"),
    ],
)
def test_names_that_could_share_keys_are_refused(kind: str, name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        written(kind, name)
    assert message.replace("{kind}", kind) in str(caught.value)


@pytest.mark.parametrize("word", ["epoch", "full-points", "token", "group", "challenge"])
def test_a_ring_is_not_named_like_a_key_of_another(word: str) -> None:
    with pytest.raises(ConfigError, match=f"because of '{word}' after its hash tag"):
        ring_keys(f"{{team}}:{word}")
    group_keys(f"{{team}}:{word}")  # No key of a group has the group's name itself.
    challenge_keys(f"{{team}}:{word}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_no_command_could_name_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind}=b'a.xff': is not UTF-8; a {kind}'s name is tex"):
        written(kind, b"a\xff")
