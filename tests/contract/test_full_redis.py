"""A Redis that is full: nodes go on, whatever their heartbeats have to put right besides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hashring.errors import OutOfMemory
from hashring.store.ring import node_orders
from hashring.store.ring.commands import BeatStatus
from hashring.store.ring.node_orders import OrderStatus
from tests.contract.places import TTL, RealPlace
from tests.contract.test_stay import stop_to_stay

A, B = "a" * 16, "b" * 16
TOLD: Any = {"told": {"named": True, "ttl": TTL}}
ORDERS = {
    "drain": {"by": "alice", "since": "5", "ends": "6"},
    "weight": {"by": "alice", "since": "5", "weight": "2"},
}
"""Two orders about a node; the time of the first is up."""


@contextmanager
def full(place: RealPlace) -> Iterator[None]:
    """Redis refuses whatever may need memory."""
    place.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        place.client.config_set("maxmemory", 0)


def set_back(place: RealPlace) -> None:
    """Make all scores those from before the clock was set back."""
    for member, score in place.zset().items():
        place.zadd(member, score + 100 * TTL)


def test_a_node_renews_itself_after_the_clock_was_set_back(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    set_back(real)
    with full(real):
        assert real.beat("n", A, 10, **TOLD).status is BeatStatus.OK
    assert real.zset()[b"10:n:id10"] <= real.now() + TTL


def test_a_drained_node_renews_itself_after_the_clock_was_set_back(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    real.store.run(node_orders.drain(real.keys, node="n", by="alice", force=True))
    real.beat("n", A, 10, **TOLD)
    real.client.zincrby(real.keys.drained, 100 * TTL, "n")
    with full(real):
        assert real.beat("n", A, 10, **TOLD).status is BeatStatus.DRAINED
    assert real.client.zscore(real.keys.drained, "n") <= real.now() + TTL


def test_a_sweep_cuts_what_the_clock_left_too_high(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    set_back(real)
    with full(real):
        real.sweep()
    assert real.zset()[b"10:n:id10"] <= real.now() + TTL


def test_a_node_renews_itself_beside_what_is_no_replica(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    real.zadd(b"no replica", real.now() + TTL)
    with full(real):
        assert real.beat("n", A, 10, **TOLD).status is BeatStatus.OK
    assert real.index()[b"no replica"] == (-1, False)


def test_a_node_is_back_when_its_drain_has_ended_though_its_weight_is_ordered(
    real: RealPlace,
) -> None:
    real.join("n", A, 10, **TOLD)
    real.order("n", json.dumps(ORDERS).encode())
    with full(real):
        assert real.beat("n", A, 10, **TOLD).status is BeatStatus.OK
    seen = real.look()
    assert (list(seen.drains), list(seen.weights)) == ([], ["n"])


def test_a_drain_is_lifted_though_a_weight_is_ordered(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    real.order("n", json.dumps(ORDERS).encode())
    with full(real):
        status = real.store.run(node_orders.undrain(real.keys, node="n", by="alice"))
    assert status is OrderStatus.OK
    assert list(real.look().weights) == ["n"]


@pytest.mark.parametrize("follow", [False, True])
def test_a_node_that_stopped_to_come_back_is_back(real: RealPlace, follow: bool) -> None:
    real.join("n", A, 10, **TOLD)
    stop_to_stay(real, "n", A, 10)
    with full(real):
        reply = real.join("n", B, 10, **TOLD) if follow else real.join("n", B, back=True, **TOLD)
    assert reply.status is BeatStatus.OK
    assert real.look().nodes["n"].session == B


def test_no_node_joins(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    with full(real), pytest.raises(OutOfMemory):
        real.join("m", B, 20, **TOLD)
    assert real.ring().nodes == ("n",)
