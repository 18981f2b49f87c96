"""Where a joining node puts its points."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashring.core.hashing import RING_SIZE
from hashring.core.point_placement import (
    BALANCED_STRETCH,
    BALANCED_STRETCHES,
    BALANCED_WHOLE,
    PLACEMENTS,
    balanced_points,
    check_placement,
    kept_points,
    more_points,
    points_of_weight,
    random_points,
    sampled_points,
)
from hashring.core.replica_ranges import replica_lengths, stretch_ranges
from hashring.core.ring import Ring
from hashring.errors import ConfigError
from tests.conftest import some

TOP = RING_SIZE - 1

seeds = st.integers(0, 2**32)
point = st.one_of(st.integers(0, 5), st.integers(TOP - 2, TOP), st.integers(0, TOP))
rings = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]), st.lists(point, max_size=8), max_size=4
).map(Ring)


class NoChance:
    """A source of randomness that must not be asked."""

    def randrange(self, stop: int, /) -> int:
        raise AssertionError("asked for randomness")


class Script:
    """A source of randomness that says what it was told to."""

    def __init__(self, *values: int) -> None:
        self.values = list(values)

    def randrange(self, stop: int, /) -> int:
        assert stop == RING_SIZE
        return self.values.pop(0)


def peak(ring: Ring) -> float:
    """The largest share against what the node's number of points entitles it to."""
    return max(
        ring.shares[name] * len(ring) / len(ring.points_of(name)) / RING_SIZE for name in ring.nodes
    )


# --- random -------------------------------------------------------------------------------------


@given(rings, st.integers(0, 40), seeds)
def test_random_points_are_new_and_as_many_as_asked(ring: Ring, count: int, seed: int) -> None:
    chosen = random_points(ring, "joiner", count, random.Random(seed))
    assert len(set(chosen)) == count
    assert list(chosen) == sorted(chosen)
    assert not set(chosen) & {p for p, _ in ring.replicas()}
    assert chosen == random_points(ring, "joiner", count, random.Random(seed))


def test_a_point_of_another_node_is_drawn_again_and_one_of_its_own_is_not() -> None:
    ring = Ring({"other": [1, 2], "joiner": [3]})
    assert random_points(ring, "joiner", 3, Script(2, 7, 3, 7, 1, 9)) == (3, 7, 9)


@pytest.mark.parametrize("place", [random_points, balanced_points])
@pytest.mark.parametrize("ring", [Ring(), Ring({"a": [5, 6], "b": [6]})], ids=["empty", "two"])
def test_more_points_than_the_ring_has_are_refused(place: object, ring: Ring) -> None:
    free = RING_SIZE - len({p for p, _ in ring.replicas()})
    with pytest.raises(ConfigError) as caught:
        place(ring, "joiner", free + 1, NoChance())  # type: ignore[operator]
    assert str(caught.value) == (
        f"n_replicas={free + 1}: the ring has {free} free points: ask for fewer"
    )


# --- balanced -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", some(range(4)))
def test_sixteen_points_keep_sixty_joiners_within_a_tenth_of_fair(seed: int) -> None:
    rng = random.Random(seed)
    ring = Ring()
    for number in range(60):
        ring = ring.with_node(f"n{number}", balanced_points(ring, f"n{number}", 16, rng))
        assert peak(ring) <= 1.1


def test_a_ring_that_churns_stays_within_a_tenth_of_fair_after_every_join() -> None:
    rng = random.Random(7)
    ring = Ring()
    for number in range(160):
        if number >= 20:
            ring = ring.without_nodes(rng.choice(ring.nodes))
        ring = ring.with_node(f"n{number}", balanced_points(ring, f"n{number}", 16, rng))
        assert peak(ring) <= 1.1


@given(
    st.lists(st.sampled_from([8, 16, 32, 48]), min_size=2, max_size=12),
    seeds,
)
@settings(max_examples=60)
def test_a_node_with_more_points_gets_that_much_more(counts: list[int], seed: int) -> None:
    rng = random.Random(seed)
    ring = Ring()
    for number, count in enumerate(counts):
        ring = ring.with_node(f"n{number}", balanced_points(ring, f"n{number}", count, rng))
    assert peak(ring) <= 1.25


@given(rings, st.integers(0, 40), seeds)
def test_a_balanced_joiner_only_takes(ring: Ring, count: int, seed: int) -> None:
    chosen = balanced_points(ring, "joiner", count, random.Random(seed))
    after = ring.with_node("joiner", chosen)
    assert {move.after for move in ring.moves(after)} <= {"joiner"}
    assert len(set(chosen)) == count
    assert list(chosen) == sorted(chosen)
    assert not set(chosen) & {p for p, _ in ring.replicas()}


@given(rings, st.integers(1, 40), seeds)
def test_a_balanced_joiner_gets_no_more_than_its_share_but_for_rounding(
    ring: Ring, count: int, seed: int
) -> None:
    chosen = balanced_points(ring, "joiner", count, random.Random(seed))
    after = ring.with_node("joiner", chosen)
    target = RING_SIZE * count / len(after)
    # One point at least for each replica, and what a cut leaves to the node it was cut from.
    assert after.shares["joiner"] <= target + count


def cuts_by_looking_at_all(ring: Ring, count: int) -> tuple[int, ...]:
    """Where a joiner puts its points: before each of them it compares all nodes."""
    owned: dict[str, list[tuple[int, int]]] = {}
    for name in ring.nodes:
        spans = [(point, length) for point, length in replica_lengths(ring, name).items() if length]
        if spans:
            owned[name] = spans
    total = len(ring) + count
    below = {
        name: RING_SIZE * len(spans) / total - sum(length for _, length in spans)
        for name, spans in owned.items()
    }
    chosen: list[int] = []
    missing = RING_SIZE * count / total
    for left in range(count, 0, -1):
        name = min(below, key=lambda name: (below[name], name))
        start, size = max(owned[name], key=lambda span: (span[1], -span[0]))
        cut = min(int(missing / left), size - 1)
        owned[name].remove((start, size))
        owned[name].append((start, size - cut))
        below[name] += cut
        missing -= cut
        chosen.append((start + size - cut) % RING_SIZE)
    return tuple(sorted(chosen))


@given(st.lists(st.lists(point, max_size=8), min_size=1, max_size=30), st.integers(0, 40))
def test_a_balanced_joiner_takes_each_point_from_whoever_has_most_then(
    points: list[list[int]], count: int
) -> None:
    ring = Ring({f"n{number}": own for number, own in enumerate(points)})
    if len(ring):
        assert balanced_points(ring, "joiner", count, NoChance()) == cuts_by_looking_at_all(
            ring, count
        )


@given(rings, st.integers(0, 40))
def test_a_balanced_join_to_others_leaves_nothing_to_chance(ring: Ring, count: int) -> None:
    if len(ring):
        chosen = balanced_points(ring, "joiner", count, NoChance())
        rebuilt = Ring({name: ring.points_of(name) for name in reversed(ring.nodes)})
        assert balanced_points(rebuilt, "joiner", count, NoChance()) == chosen


def test_the_first_node_spreads_evenly_from_a_random_start() -> None:
    quarter = RING_SIZE // 4
    assert balanced_points(Ring(), "a", 4, Script(quarter + 5)) == (
        5,
        quarter + 5,
        2 * quarter + 5,
        3 * quarter + 5,
    )


@given(seeds, st.integers(1, 20))
def test_points_a_node_has_already_do_not_count_when_it_comes_back(seed: int, count: int) -> None:
    ring = Ring({"a": [1, 2**31], "b": [2**30]})
    back = ring.with_node("joiner", random_points(ring, "joiner", 9, random.Random(seed)))
    assert balanced_points(back, "joiner", count, NoChance()) == balanced_points(
        ring, "joiner", count, NoChance()
    )


def test_from_a_single_replica_every_point_can_be_cut() -> None:
    ring = Ring({"a": [TOP]})
    after = ring.with_node("b", balanced_points(ring, "b", 1, NoChance()))
    assert after.share("b") == 0.5


def test_where_only_a_few_points_are_left_to_a_node_they_are_left_to_it() -> None:
    # One node owns a single point, the other all the rest: nothing can be cut off the first.
    ring = Ring({"a": [10], "b": [11]})
    chosen = balanced_points(ring, "joiner", 5, NoChance())
    assert ring.with_node("joiner", chosen).shares["a"] == 1


# --- the name -----------------------------------------------------------------------------------


def test_a_placement_is_one_of_two() -> None:
    assert PLACEMENTS == ("random", "balanced")
    assert [check_placement(name) for name in PLACEMENTS] == ["random", "balanced"]


@pytest.mark.parametrize("name", ["even", "", None])
def test_an_unknown_placement_is_refused_with_the_known_ones(name: object) -> None:
    with pytest.raises(ConfigError) as caught:
        check_placement(name)  # type: ignore[arg-type]
    assert str(caught.value) == f"placement={name!r}: unknown; choose one of random, balanced"


# --- balanced, without the ring -------------------------------------------------------------------


def around(ring: Ring) -> dict[str, list[tuple[int, int]]]:
    """Start and length of the range of each replica, by node."""
    replicas = list(ring.replicas())
    ends = [*(point for point, _ in replicas[1:]), replicas[0][0] + RING_SIZE]
    found: dict[str, list[tuple[int, int]]] = {}
    for (start, name), end in zip(replicas, ends, strict=True):
        found.setdefault(name, []).append((start, end - start))
    return found


@given(st.integers(1, 40), st.integers(1, 20), seeds)
@settings(max_examples=30)
def test_with_all_nodes_known_a_joiner_places_as_one_that_reads_the_ring(
    nodes: int, count: int, seed: int
) -> None:
    rng = random.Random(seed)
    ring = Ring({f"n{i}": [rng.randrange(RING_SIZE) for _ in range(4)] for i in range(nodes)})
    found = sampled_points(around(ring), len(ring), count, NoChance())
    assert found == balanced_points(ring, "joiner", count, NoChance())


def test_a_first_joiner_spreads_its_points() -> None:
    assert sampled_points({}, 0, 4, Script(7)) == (7, 7 + 2**30, 7 + 2**31, 7 + 3 * 2**30)


def looked_around(ring: Ring, rng: random.Random) -> Mapping[str, Sequence[tuple[int, int]]]:
    """What a joiner sees of a ring that is too large to be seen whole."""
    replicas = list(ring.replicas())
    stretches = []
    for _ in range(BALANCED_STRETCHES):
        first = bisect_left(replicas, (rng.randrange(RING_SIZE), ""))
        around = replicas[first:] + replicas[:first]
        stretches.append(around[: BALANCED_STRETCH + 1])
    return stretch_ranges(stretches)


@pytest.mark.parametrize("seed", some(range(2)))
def test_joiners_that_look_at_stretches_keep_the_ring_far_nearer_to_fair_than_chance(
    seed: int,
) -> None:
    rng = random.Random(seed)
    nodes = BALANCED_WHOLE // 16
    ring = Ring({"first": _spread(rng)})
    even, chance = ring, ring
    for number in range(nodes + 72):
        name = f"n{number}"
        seen = around(ring) if len(ring) <= BALANCED_WHOLE else looked_around(ring, rng)
        ring = ring.with_node(name, sampled_points(seen, len(ring), 16, rng))
        even = even.with_node(name, balanced_points(even, name, 16, rng))
        chance = chance.with_node(name, random_points(chance, name, 16, rng))
    assert peak(even) <= peak(ring) <= 1.3
    assert peak(chance) > 1.6


def test_a_joiner_to_a_large_ring_cuts_ranges_of_different_lengths() -> None:
    # Its share is the fair one, and the longest range has twice the length of the shortest.
    points = BALANCED_WHOLE + 1
    seen = {f"n{number}": [(number << 24, 1 << 24)] for number in range(64)}
    cut = [(1 << 24) - point % (1 << 24) for point in sampled_points(seen, points, 16, NoChance())]
    assert sum(cut) == pytest.approx(16 * RING_SIZE / (points + 16), rel=1e-5)
    assert max(cut) / min(cut) == pytest.approx(2 ** (15 / 16), rel=1e-4)


def _spread(rng: random.Random) -> tuple[int, ...]:
    return sampled_points({}, 0, 16, rng)


# --- another weight -----------------------------------------------------------------------------


@given(
    rings.filter(lambda ring: ring.node_count > 0),
    st.integers(1, 40),
    seeds,
    st.sampled_from(PLACEMENTS),
)
def test_points_that_a_node_adds_are_new_and_as_many_as_asked(
    ring: Ring, count: int, seed: int, placement: str
) -> None:
    node = ring.nodes[0]
    chosen = more_points(ring, node, count, random.Random(seed), placement)
    assert len(set(chosen)) == count
    assert list(chosen) == sorted(chosen)
    assert not set(chosen).intersection(ring.points_of(node))


@given(st.integers(2, 8), st.sampled_from([1, 4, 16]), seeds)
def test_a_balanced_node_that_grows_has_its_fair_share_then(
    nodes: int, count: int, seed: int
) -> None:
    rng = random.Random(seed)
    ring = Ring()
    for number in range(nodes):
        ring = ring.with_node(f"n{number}", balanced_points(ring, f"n{number}", 16, rng))
    more = more_points(ring, "n0", count, rng, "balanced")
    after = ring.with_node("n0", [*ring.points_of("n0"), *more])
    fair = (16 + count) / len(after)
    assert after.share("n0") == pytest.approx(max(fair, ring.share("n0")), rel=0.01)
    assert peak(after) <= max(1.1, peak(ring))


@given(rings.filter(lambda ring: ring.node_count > 0), st.data())
def test_a_node_keeps_as_many_of_its_points_as_it_may(ring: Ring, data: st.DataObject) -> None:
    node = ring.nodes[0]
    lengths = replica_lengths(ring, node)
    assert set(lengths) == set(ring.points_of(node))
    count = data.draw(st.integers(1, len(lengths)))
    kept = kept_points(lengths, count)
    assert len(set(kept)) == count
    assert set(kept) <= set(lengths)
    assert list(kept) == sorted(kept)


def test_half_of_the_points_of_a_node_own_about_half_of_what_it_had() -> None:
    lengths = {point: point for point in range(1, 33)}
    assert sum(kept_points(lengths, 16)) == pytest.approx(sum(lengths.values()) / 2, rel=0.05)


@pytest.mark.parametrize(
    ("n_replicas", "weight", "points"),
    [(16, 1, 16), (16, 2, 32), (16, 0.01, 1), (16, 1.5, 24), (1000, 1000, 20_000)],
)
def test_a_weight_makes_points(n_replicas: int, weight: float, points: int) -> None:
    assert points_of_weight(n_replicas, weight) == points
