"""Forgetting a group: what stays decided, what a later member finds, and histories with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hashring.core.groups import group_orders, group_status
from hashring.core.groups.member_orders import drain
from hashring.core.groups.state import EventKind, Facts, GroupPhase, MemberFacts
from hashring.protocol.group import group_flows
from hashring.testing.simulator import GroupSimulator
from hashring.testing.simulator.groups.random_histories import forgotten_group_history
from hashring.testing.simulator.groups.world import GroupRule, GroupWorld
from tests.unit.groups.desk import Desk
from tests.unit.histories import find_fault, none_breaks_a_rule
from tests.unit.planted_scripts import plant


def crashed(desk: Desk) -> Desk:
    """The leases of all members have ended."""
    for name in desk.members:
        desk.set(name, expires=desk.now)
    return desk


def forget(desk: Desk) -> Desk:
    outcome = group_orders.forget(desk.state, desk.facts)
    desk.state, desk.events = outcome.state.stamped(desk.now), list(outcome.events)
    desk.members.clear()
    return desk


def rebalancing(assignor: str = "balanced") -> Desk:
    """A group in which a partition is on its way, or warmed up for."""
    desk = Desk(4, assignor, max_handoff_time=10.0).join("a").settle()
    desk.join("b").step()
    assert desk.phase is GroupPhase.REBALANCING
    return desk


@pytest.mark.parametrize("assignor", ["balanced", "learner"])
def test_nobody_holds_anything_and_nobody_is_waited_for(assignor: str) -> None:
    desk = forget(crashed(rebalancing(assignor)))
    status = group_status.status(desk.state, desk.facts)
    assert (status.phase, status.waits, status.unowned) == (GroupPhase.READY, (), (0, 1, 2, 3))
    assert (desk.state.roster, desk.state.warming, desk.state.standbys) == ({}, {}, {})


def test_a_wait_for_the_rebalance_delay_ends() -> None:
    desk = Desk(4, rebalance_delay=50.0).join("a").settle()
    desk.join("b").step()
    assert desk.phase is GroupPhase.HOLDDOWN
    forget(crashed(desk))
    assert (desk.phase, desk.state.holddown) == (GroupPhase.READY, None)


def test_a_removed_partition_that_drains_is_not_waited_for_either() -> None:
    desk = Desk(4).join("a").settle().resize(2)
    forget(crashed(desk))
    assert group_status.status(desk.state, desk.facts).blocking == ()
    desk.join("b").settle()
    assert desk.having == {"b": [0, 1, 2, 3]}


def test_it_is_noted_who_was_there() -> None:
    desk = Desk(4).join("a", "b", "c").settle()
    crashed(desk).leave("c")
    forget(desk)
    assert [(event.kind, event.member) for event in desk.events] == [
        (EventKind.EXPIRED, "a"),
        (EventKind.EXPIRED, "b"),
        (EventKind.LEFT, "c"),
        (EventKind.FORGOTTEN, None),
    ]


def test_the_next_member_has_everything_at_once_whatever_the_delay() -> None:
    desk = Desk(4, rebalance_delay=50.0).join("a", "b").settle()
    before = desk.state
    forget(crashed(desk)).join("c").step()
    assert desk.having == {"c": [0, 1, 2, 3]}
    assert desk.phase is GroupPhase.READY
    assert EventKind.HOLDDOWN not in [event.kind for event in desk.events]
    assert min(desk.state.tokens) > before.token


def test_orders_stand() -> None:
    desk = Desk(4).join("a", "b").settle()
    desk.state = drain(desk.state, "a", desk.now, "ops").state.stamped(desk.now)
    before = desk.state.orders
    assert forget(crashed(desk)).state.orders == before


def test_what_redis_lost_is_still_waited_for() -> None:
    desk = Desk(4).join("a").settle()
    desk.server = "another"
    desk.wait(0.0).step()
    desk.server = "a third"
    desk.join("a").step()
    assert desk.state.recovering is not None
    before = desk.state
    forget(crashed(desk))
    assert (desk.state.recovering, desk.phase) == (before.recovering, GroupPhase.REBALANCING)


def test_that_another_server_took_the_place_of_the_first_is_left_for_the_next_step() -> None:
    desk = Desk(4).join("a").settle()
    desk.server = "one"
    desk.step()
    desk.server = "another"
    forget(crashed(desk)).join("b").step()
    assert EventKind.RECOVERING in [event.kind for event in desk.events]


@pytest.mark.parametrize("unreadable", [False, True])
def test_members_live_while_their_leases_stand(unreadable: bool) -> None:
    members = tuple(MemberFacts(name, "", 1, at) for name, at in (("b", 3.0), ("a", 2.0)))
    facts = Facts(1.5, unreadable=members) if unreadable else Facts(1.5, members)
    assert facts.live == ("a", "b")
    assert replace(facts, now=2.0).live == ("b",)
    assert replace(facts, now=3.0).live == ()


# --- histories ----------------------------------------------------------------------------------


def test_no_history_in_which_a_group_is_forgotten_breaks_a_rule() -> None:
    none_breaks_a_rule(GroupSimulator(), forgotten_group_history, range(60))


class Back(GroupRule):
    """Sees whether the group is forgotten, and whether a member is in it after that."""

    forgotten = back = False

    def touched(self, world: GroupWorld, lost: bool) -> None:
        state = world.state()
        self.forgotten = self.forgotten or (state.generation > 0 and not state.roster)

    def healed(self, world: GroupWorld) -> None:
        self.back = self.forgotten and bool(world.state().roster)


def test_in_most_of_them_it_is_forgotten_and_back_again() -> None:
    rules = [Back() for _ in range(20)]
    for seed, rule in enumerate(rules):
        simulator = GroupSimulator(rules=lambda rule=rule: [rule])
        assert simulator.broken_rule(forgotten_group_history(seed)) is None
    assert sum(rule.back for rule in rules) >= 10


def test_a_group_that_is_forgotten_though_members_live_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_flows, "check_empty", lambda name, facts: None)
    plant(monkeypatch, ("redis.call('ZCOUNT', KEYS[3], '(' .. text(now), '+inf') > 0", "false"))
    find_fault(GroupSimulator(), "holder|goodbye|once", forgotten_group_history, 200)
