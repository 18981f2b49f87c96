"""Where a group stands, for whom it waits, and until when."""

from __future__ import annotations

from hashring.core.assignors import LearnerAssignor
from hashring.core.groups.group_status import GroupWait, WaitKind, status
from hashring.core.groups.state import GroupPhase

from .desk import Desk, three


def test_a_group_at_rest_waits_for_nothing() -> None:
    desk = three()
    found = status(desk.state, desk.facts)
    assert (found.phase, found.waits, found.until, found.unowned) == (
        GroupPhase.READY,
        (),
        None,
        (),
    )
    assert [(m.name, len(m.partitions)) for m in found.members] == [("a", 3), ("b", 2), ("c", 2)]
    assert found.blocking == ()


def test_members_that_expired_are_told_until_a_live_one_removes_them() -> None:
    desk = three()
    assert status(desk.state, desk.facts).expired == ()
    desk.now += 200
    assert status(desk.state, desk.facts).expired == ("a", "b", "c")


def test_members_whose_reports_cannot_be_read_are_named_until_their_leases_end() -> None:
    desk = three()
    assert status(desk.state, desk.facts).unreadable == ()
    desk.unreadable |= {"c", "b"}
    found = status(desk.state, desk.facts)
    assert found.unreadable == ("b", "c")
    assert [member.name for member in found.members] == ["a", "b", "c"]
    # One that joined and has no place yet is no member that is counted on.
    desk.join("d").unreadable.add("d")
    assert status(desk.state, desk.facts).unreadable == ("b", "c", "d")
    desk.now += 200
    found = status(desk.state, desk.facts)
    assert (found.unreadable, found.expired) == ((), ("a", "b", "c", "d"))


def test_a_holddown_says_until_when() -> None:
    desk = three().join("d").step().wait(2).step()
    found = status(desk.state, desk.facts)
    assert found.phase is GroupPhase.HOLDDOWN
    assert found.waits == (GroupWait(WaitKind.CHANGES, until=desk.now + 3),)
    assert found.until == desk.now + 3


def test_a_handoff_says_who_blocks_it_and_until_when() -> None:
    desk = three().join("d").step().wait(5).step()
    [(partition, _)] = desk.asked.items()
    # It has not heard of it: what counts is its lease.
    [wait] = status(desk.state, desk.facts).waits
    assert wait == GroupWait(WaitKind.LEASE, "a", partition, desk.now + 50)
    desk.set("a", seen=desk.state.generation)
    found = status(desk.state, desk.facts)
    assert found.waits == (GroupWait(WaitKind.RELEASE, "a", partition, desk.now + 3),)
    assert found.blocking == ("a",)
    assert found.until == desk.now + 3


def test_a_warm_up_says_whom_it_waits_for() -> None:
    desk = Desk(2, LearnerAssignor()).join("a").step().join("b").step()
    assert status(desk.state, desk.facts).waits == (GroupWait(WaitKind.WARMUP, "b", 0),)


def test_a_leaving_owner_does_not_wait_for_warm_ups_for_ever() -> None:
    desk = Desk(2, LearnerAssignor(), leave_timeout=30).join("a", "b").step()
    desk.set("a", leaving=desk.now).step()
    assert status(desk.state, desk.facts).waits == (
        GroupWait(WaitKind.WARMUP, "b", 0, desk.now + 30),
    )


def test_a_removed_partition_says_who_has_to_drain_it() -> None:
    desk = Desk(2).join("a").step().resize(1).step()
    found = status(desk.state, desk.facts)
    assert found.waits == (GroupWait(WaitKind.DRAIN, "a", 1),)
    assert found.draining == (1,)


def test_a_group_without_members_waits_for_nothing() -> None:
    desk = three().join("d").step()
    desk.leave("a", "b", "c", "d").step()
    assert desk.state.phase is GroupPhase.HOLDDOWN
    found = status(desk.state, desk.facts)
    assert (found.has_members, found.waits, found.until, found.latest) == (False, (), None, None)


def test_after_a_loss_it_says_until_when_members_may_return() -> None:
    desk = Desk(2, ttl=10).join("a", seen=3, claims={0: 1}).step()
    found = status(desk.state, desk.facts)
    assert found.waits == (GroupWait(WaitKind.RETURN, until=desk.now + 10),)
    assert found.unowned == (1,)


def test_what_a_gone_member_had_is_without_an_owner_before_the_next_decision() -> None:
    desk = Desk(4).join("a", "b").settle()
    assert desk.having == {"a": [0, 2], "b": [1, 3]}
    desk.set("a", expires=desk.now)
    found = status(desk.state, desk.facts)
    assert [(m.name, m.partitions) for m in found.members] == [("b", (1, 3))]
    assert found.unowned == (0, 2)
    # Another process under the same name holds nothing of what the first one held.
    desk.join("a")
    found = status(desk.state, desk.facts)
    assert [(m.name, m.partitions) for m in found.members] == [("a", ()), ("b", (1, 3))]
    assert found.unowned == (0, 2)


# --- plan and explain -------------------------------------------------------------------------
