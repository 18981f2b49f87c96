"""The member's side: it never counts a partition as held longer than the group can know."""

from __future__ import annotations

import math

from hashring.core.groups.member_holdings import MemberHoldings
from hashring.core.groups.partition_change import PartitionChange, PartitionChangeKind
from hashring.core.groups.state import GroupPhase, MemberView


def view(generation: int = 1, **parts: object) -> MemberView:
    return MemberView(generation, GroupPhase.READY, seated=True, **parts)  # type: ignore[arg-type]


def member(held: dict[int, int], at: float = 0.0, ttl: float = 10.0) -> MemberHoldings:
    found = MemberHoldings(ttl)
    found.heard(view(held=held), at, 5000.0, at)
    return found


def kinds(changes: list[PartitionChange]) -> list[tuple[str, int]]:
    """What is assigned, revoked and so on; whether the member is active has tests of its own."""
    activity = (PartitionChangeKind.ACTIVE, PartitionChangeKind.INACTIVE)
    return [
        (change.kind.value, change.partition) for change in changes if change.kind not in activity
    ]


def test_what_the_group_grants_is_assigned_with_its_token() -> None:
    fresh = MemberHoldings(10.0)
    changes = fresh.heard(view(held={3: 77}), 0.0, 5000.0, 0.1)
    assert changes == [
        PartitionChange(PartitionChangeKind.ACTIVE, 3, 77),
        PartitionChange(PartitionChangeKind.ASSIGNED, 3, 77),
    ]
    assert fresh.held(0.2) == {3: 77}


def test_a_member_begins_without_a_stall() -> None:
    assert not MemberHoldings(10.0).words().stalled


def test_the_lease_counts_from_when_the_question_was_sent() -> None:
    late = MemberHoldings(10.0)
    late.heard(view(held={0: 1}), 2.0, 5000.0, 9.0)
    assert late.held(11.99) == {0: 1}
    assert late.held(12.0) == {}


def test_the_newest_token_is_the_greatest_that_was_ever_held() -> None:
    one = member({0: 5, 1: 2})
    one.tick(10.0)
    assert (one.newest_token, MemberHoldings(10.0).newest_token) == (5, 0)


def test_without_renewal_everything_is_lost() -> None:
    one = member({0: 1, 1: 2})
    assert one.due() == 10.0
    assert kinds(one.tick(9.9)) == []
    assert kinds(one.tick(10.0)) == [("lost", 0), ("lost", 1)]
    assert one.due() == math.inf


def test_what_was_lost_is_not_taken_up_again_under_the_same_token() -> None:
    one = member({0: 1})
    one.tick(10.0)
    assert one.heard(view(held={0: 1}), 11.0, 5011.0, 11.0) == []
    assert one.held(11.0) == {}
    assert one.words().released == {0: 1}
    assert kinds(one.heard(view(2, held={0: 2}), 12.0, 5012.0, 12.0)) == [("assigned", 0)]
    assert one.words().released == {}


def test_what_was_let_go_of_is_not_taken_up_again_when_redis_has_forgotten_that() -> None:
    one = member({0: 7})
    assert one.release(0, 7, 0.0)
    one.heard(view(2, held={}), 1.0, 5001.0, 1.0)
    assert one.words().released == {}
    # Others may have had it since, under greater tokens.
    for token in (7, 6):
        assert one.heard(view(3, held={0: token}), 2.0, 5002.0, 2.0) == []
        assert one.held(2.0) == {}
        assert one.words().released == {0: token}
    assert kinds(one.heard(view(4, held={0: 8}), 3.0, 5003.0, 3.0)) == [("assigned", 0)]


def test_a_decision_that_comes_after_the_lease_takes_nothing_up() -> None:
    one = member({0: 1})
    assert kinds(one.asked_for(view(2, held={0: 1, 1: 2}), 9.0, 5009.0, 10.0)) == [("lost", 0)]
    assert one.asked_for(view(3, held={0: 1, 1: 2}), 9.0, 5009.0, 10.0) == []
    assert one.held(10.0) == {}


def test_a_decision_that_comes_within_the_lease_is_taken_up() -> None:
    one = member({0: 1})
    late = one.asked_for(view(2, held={0: 1}, revoked={0: 5009.5}), 9.0, 5009.0, 9.9)
    assert [(change.kind.value, change.deadline) for change in late] == [("revoked", 9.5)]


def test_an_answer_that_lay_in_the_socket_for_a_lease_prolongs_nothing() -> None:
    one = MemberHoldings(10.0)
    assert one.heard(view(held={0: 1}), 0.0, 5000.0, 10.0) == []
    assert one.held(10.0) == {}


def test_a_revoked_partition_ends_at_its_deadline_even_if_the_lease_goes_on() -> None:
    one = member({0: 1, 1: 2})
    changes = one.heard(view(2, held={0: 1, 1: 2}, revoked={1: 5003.5}), 1.0, 5001.0, 1.2)
    # What is left counts from the question, which was sent before Redis looked at its clock.
    assert changes == [PartitionChange(PartitionChangeKind.REVOKED, 1, 2, deadline=3.5)]
    assert one.held(3.4) == {0: 1, 1: 2}
    assert one.held(3.5) == {0: 1}
    assert one.due() == 3.5
    assert kinds(one.tick(3.5)) == [("lost", 1)]
    assert one.words().released == {1: 2}


def test_a_deadline_ends_nothing_that_was_granted_anew_since() -> None:
    one = member({0: 1})
    one.heard(view(2, held={0: 1}, revoked={0: 5003.0}), 0.0, 5000.0, 0.0)
    assert kinds(one.heard(view(3), 1.0, 5001.0, 1.0)) == [("lost", 0)]
    one.heard(view(4, held={0: 2}), 2.0, 5002.0, 2.0)
    assert one.due() == 12.0
    assert one.tick(3.0) == []
    assert one.held(3.0) == {0: 2}


def test_a_word_that_comes_after_the_deadline_does_not_keep_a_partition_from_being_lost() -> None:
    one = member({0: 1})
    draining = frozenset({0})
    one.heard(view(2, held={0: 1}, draining=draining, revoked={0: 5003.0}), 0.0, 5000.0, 0.0)
    # The clock has not been looked at since.
    assert not one.release(0, 1, 3.0)
    assert not one.drained(0, 3.0)
    assert kinds(one.tick(3.0)) == [("lost", 0)]


def test_a_deadline_is_not_put_off_by_hearing_it_again() -> None:
    one = member({0: 1})
    one.heard(view(2, held={0: 1}, revoked={0: 5003.0}), 0.0, 5000.0, 0.0)
    assert one.heard(view(2, held={0: 1}, revoked={0: 5003.0}), 2.0, 5001.0, 2.0) == []
    assert one.held(2.9) == {0: 1}
    assert one.held(3.0) == {}


def test_the_applications_word_ends_a_partition_and_is_told_until_it_is_heard() -> None:
    one = member({0: 1, 1: 2})
    assert one.release(1, 2, 0.0)
    assert one.held(1.0) == {0: 1}
    one.heard(view(1, held={0: 1, 1: 2}), 2.0, 5002.0, 2.0)
    assert one.words().released == {1: 2}
    one.heard(view(2, held={0: 1}), 3.0, 5003.0, 3.0)
    assert one.words().released == {}


def test_a_word_about_what_is_not_held_is_no_news() -> None:
    one = member({0: 1})
    assert not one.release(0, 99, 0.0)
    assert not one.release(5, 1, 0.0)
    assert not one.drained(0, 1.0)
    assert not one.lag(0, 0.0)


def test_what_the_group_takes_away_is_lost_at_once() -> None:
    one = member({0: 1, 1: 2})
    assert kinds(one.heard(view(2, held={0: 1}), 1.0, 5001.0, 1.0)) == [("lost", 1)]
    assert one.held(1.0) == {0: 1}


def test_of_two_handoffs_the_earlier_deadline_counts() -> None:
    one = member({0: 1})
    one.heard(view(2, held={0: 1}, revoked={0: 5009.0}), 0.0, 5000.0, 0.0)
    # Redis lost what was decided: the member joins anew, with its claim, and is asked anew.
    one.joined()
    one.heard(view(3, held={0: 1}), 1.0, 5001.0, 1.0)
    assert one.heard(view(4, held={0: 1}, revoked={0: 5004.0}), 2.0, 5002.0, 2.0) == []
    assert one.held(3.9) == {0: 1}
    assert kinds(one.tick(4.0)) == [("lost", 0)]
    assert one.held(4.0) == {}


def test_a_partition_that_was_granted_anew_is_lost_and_assigned() -> None:
    one = member({0: 1})
    assert kinds(one.heard(view(2, held={0: 9}), 1.0, 5001.0, 1.0)) == [
        ("lost", 0),
        ("assigned", 0),
    ]


def test_what_was_granted_anew_and_asked_back_at_once_is_held_no_more() -> None:
    one = member({0: 1})
    anew = view(2, held={0: 2}, revoked={0: 5005.0})
    assert kinds(one.heard(anew, 1.0, 5001.0, 1.0)) == [("lost", 0)]
    assert one.held(1.0) == {}
    assert one.words().released == {0: 2}


def test_what_is_asked_back_before_it_was_heard_of_is_never_begun() -> None:
    one = MemberHoldings(10.0)
    assert one.heard(view(held={0: 1}, revoked={0: 5003.0}), 0.0, 5000.0, 0.0) == []
    assert one.held(0.1) == {}
    assert one.words().released == {0: 1}


def test_an_answer_from_before_the_last_decision_is_ignored() -> None:
    one = MemberHoldings(10.0)
    one.heard(view(5, held={0: 1}), 0.0, 5000.0, 0.0)
    assert one.heard(view(4, held={}), 1.0, 5001.0, 1.0) == []
    assert one.held(9.9) == {0: 1}
    assert one.held(10.0) == {}


def test_before_it_has_a_seat_a_member_keeps_what_it_claims() -> None:
    one = member({0: 1})
    one.joined()
    for generation in (1, 2):
        assert one.heard(MemberView(generation, GroupPhase.READY), 1.0, 5001.0, 1.0) == []
    assert one.held(5.0) == {0: 1}


def test_what_a_member_claims_without_a_seat_ends_with_the_lease_of_the_session_before() -> None:
    one = member({0: 1})
    one.joined()
    for at in (4.0, 8.0):
        one.heard(MemberView(2, GroupPhase.READY), at, 5000.0 + at, at)
    assert one.held(9.9) == {0: 1}
    assert one.held(10.0) == {}
    assert kinds(one.heard(MemberView(2, GroupPhase.READY), 12.0, 5012.0, 12.0)) == [("lost", 0)]


def test_a_seat_prolongs_what_a_member_claims() -> None:
    one = member({0: 1})
    one.joined()
    one.heard(MemberView(2, GroupPhase.READY), 4.0, 5004.0, 4.0)
    one.heard(view(3, held={0: 1}), 8.0, 5008.0, 8.0)
    assert one.held(17.9) == {0: 1}


def test_a_member_that_lost_its_seat_loses_everything_at_once() -> None:
    one = member({0: 1, 1: 2})
    lost = one.heard(MemberView(2, GroupPhase.READY), 1.0, 5001.0, 1.0)
    assert kinds(lost) == [("lost", 0), ("lost", 1)]
    assert one.held(1.0) == {}


def test_a_view_without_a_seat_from_before_the_last_decision_is_ignored() -> None:
    one = MemberHoldings(10.0)
    one.heard(view(5, held={0: 1}), 0.0, 5000.0, 0.0)
    assert one.heard(MemberView(4, GroupPhase.READY), 1.0, 5001.0, 1.0) == []
    assert one.held(5.0) == {0: 1}


def test_a_removed_partition_is_to_be_drained_and_then_let_go() -> None:
    one = member({0: 1})
    changes = one.heard(view(2, held={0: 1}, draining=frozenset({0})), 1.0, 5001.0, 1.0)
    assert kinds(changes) == [("drain", 0)]
    assert one.drained(0, 1.0)
    assert one.words().drained == {0: 1}
    assert one.held(1.0) == {}


def test_what_was_to_be_drained_and_is_there_again_may_still_be_reported_as_drained() -> None:
    one = member({0: 1})
    one.heard(view(2, held={0: 1}, draining=frozenset({0})), 1.0, 5001.0, 1.0)
    assert one.heard(view(3, held={0: 1}), 2.0, 5002.0, 2.0) == []
    # The application knows nothing of that. It has ended its work: the group grants it anew.
    assert one.drained(0, 2.0)
    assert one.words().drained == {0: 1}
    again = one.heard(view(4, held={0: 2}), 3.0, 5003.0, 3.0)
    assert kinds(again) == [("assigned", 0)]
    assert not one.drained(0, 3.0)


def test_what_is_removed_drained_kept_and_removed_once_more_is_to_be_drained_once_more() -> None:
    one = member({0: 1})
    draining = frozenset({0})
    one.heard(view(2, held={0: 1}, draining=draining), 1.0, 5001.0, 1.0)
    one.heard(view(3, held={0: 1}), 2.0, 5002.0, 2.0)
    again = one.heard(view(4, held={0: 1}, draining=draining), 3.0, 5003.0, 3.0)
    assert kinds(again) == [("drain", 0)]


def test_what_another_member_is_to_empty_is_not_to_be_drained_here() -> None:
    one = member({0: 1})
    told = view(2, held={0: 1}, draining=frozenset({0}), revoked={0: 5005.0})
    assert kinds(one.heard(told, 1.0, 5001.0, 1.0)) == [("revoked", 0)]


def test_what_ended_at_different_times_is_lost_in_the_order_of_the_numbers() -> None:
    one = member({0: 1, 1: 2})
    one.heard(view(2, held={0: 1, 1: 2}, revoked={0: 5004.0, 1: 5003.0}), 0.0, 5000.0, 0.0)
    assert kinds(one.tick(5.0)) == [("lost", 0), ("lost", 1)]


def test_what_was_to_be_drained_and_is_then_asked_back_may_still_be_reported_as_drained() -> None:
    one = member({0: 1})
    draining = frozenset({0})
    one.heard(view(2, held={0: 1}, draining=draining), 1.0, 5001.0, 1.0)
    one.heard(view(3, held={0: 1}, draining=draining, revoked={0: 5005.0}), 2.0, 5002.0, 2.0)
    assert one.drained(0, 2.0)


def test_a_member_that_leaves_renews_and_begins_nothing() -> None:
    one = member({0: 1, 1: 2})
    assert one.close(30.0) == [
        PartitionChange(PartitionChangeKind.REVOKED, 0, 1, 30.0),
        PartitionChange(PartitionChangeKind.REVOKED, 1, 2, 30.0),
    ]
    assert one.release(0, 1, 0.0)
    assert one.words().released == {0: 1}
    assert one.heard(view(2, held={0: 1, 1: 2, 2: 3}), 9.0, 5009.0, 9.0) == []
    assert one.held(18.9) == {1: 2}
    # Granted before the group heard that it leaves: given up at once.
    assert one.words().released == {0: 1, 2: 3}
    assert kinds(one.tick(19.0)) == [("lost", 1)]


def test_a_member_that_leaves_ends_in_time_for_a_handoff() -> None:
    one = member({0: 1, 1: 2})
    one.close(9.0)
    # Asked for before that, heard of after: the group counts on the earlier deadline.
    assert one.heard(view(2, held={0: 1, 1: 2}, revoked={0: 5003.0}), 1.0, 5001.0, 1.0) == []
    assert kinds(one.tick(3.0)) == [("lost", 0)]
    assert one.words().released == {0: 1}
    assert kinds(one.tick(9.0)) == [("lost", 1)]


def test_warm_ups_begin_and_end_and_their_lags_are_told() -> None:
    one = member({})
    assert kinds(one.heard(view(2, warming=frozenset({4})), 1.0, 5001.0, 1.0)) == [("warmup", 4)]
    assert one.lag(4, 12.0)
    assert one.words().lags == {4: 12.0}
    assert kinds(one.heard(view(3), 2.0, 5002.0, 2.0)) == [("cooled", 4)]
    assert one.words().lags == {}


def test_who_begins_to_listen_is_told_what_stands() -> None:
    one = member({0: 1, 1: 2, 2: 3})
    parts = {"held": {0: 1, 1: 2, 2: 3}, "revoked": {1: 5004.0}, "draining": frozenset({2})}
    one.heard(view(2, warming=frozenset({7}), **parts), 1.0, 5001.0, 1.0)
    assert [(each.kind.value, each.partition) for each in one.standing(1.0)] == [
        ("active", 0),
        ("assigned", 0),
        ("assigned", 1),
        ("revoked", 1),
        ("assigned", 2),
        ("drain", 2),
        ("warmup", 7),
    ]


def test_a_member_with_nothing_to_warm_up_answers_for_all_that_nobody_answered_for() -> None:
    one = MemberHoldings(10.0)
    one.heard(view(warming=frozenset({1, 2})), 0.0, 5000.0, 0.0)
    one.lag(1, 7.0)
    assert one.cold == {2}
    one.warm_at_once()
    assert one.words().lags == {1: 7.0, 2: 0.0}
    assert one.cold == frozenset()


def test_the_next_wake_is_at_the_time_of_the_step_that_the_member_waits_for() -> None:
    one = member({0: 1})
    assert one.due() == 10.0
    one.watch(4.0)
    assert one.due() == 4.0
    assert one.tick(3.9) == []
    assert one.due() == 4.0
    # From then on the renewal that follows takes the step, or learns of the next one.
    assert one.tick(4.0) == []
    assert one.due() == 10.0


def test_a_member_that_holds_nothing_waits_for_a_step_as_well() -> None:
    one = MemberHoldings(10.0)
    one.watch(4.0)
    assert one.due() == 4.0


def activity(changes: list[PartitionChange]) -> list[str]:
    return [change.kind.value for change in changes]


def test_a_member_becomes_active_before_its_first_partition_is_assigned() -> None:
    # Solace: the active indicator.
    one = MemberHoldings(10.0)
    assert activity(one.heard(view(), 0.0, 5000.0, 0.0)) == []
    changes = one.heard(view(2, held={1: 7, 2: 8}), 1.0, 5001.0, 1.0)
    assert activity(changes) == ["active", "assigned", "assigned"]
    assert activity(one.heard(view(3, held={1: 7, 2: 8, 3: 9}), 2.0, 5002.0, 2.0)) == ["assigned"]


def test_a_member_stays_active_if_only_some_of_its_partitions_go() -> None:
    # Solace: "flows remain active if only some of their assigned partitions are removed".
    one = member({1: 7, 2: 8})
    assert activity(one.heard(view(2, held={2: 8}), 1.0, 5001.0, 1.0)) == ["lost"]
    assert activity(one.heard(view(3, held={3: 9}), 2.0, 5002.0, 2.0)) == ["lost", "assigned"]
    assert activity(one.heard(view(4), 3.0, 5003.0, 3.0)) == ["lost", "inactive"]


def test_a_member_that_lets_go_of_its_last_partition_is_inactive() -> None:
    one = member({1: 7})
    assert one.release(1, 7, 0.0)
    assert one.tick(1.0) == [PartitionChange(PartitionChangeKind.INACTIVE, 1)]
    assert one.tick(1.0) == []


def test_a_member_whose_lease_ends_is_inactive() -> None:
    assert activity(member({1: 7, 2: 8}).tick(10.0)) == ["lost", "lost", "inactive"]


def test_a_member_that_leaves_loses_everything_also_what_time_has_ended() -> None:
    one = member({1: 7, 2: 8})
    one.release(1, 7, 0.0)
    assert activity(one.end()) == ["lost", "inactive"]
    assert activity(one.end()) == []


def test_readers_keep_a_whole_picture() -> None:
    one = member({0: 1})
    picture = one.holding
    one.release(0, 1, 0.0)
    assert picture.token(0, 1.0) == 1
    assert one.holding.token(0, 1.0) is None


def test_a_view_that_came_too_late_is_taken_up_when_it_comes_again() -> None:
    one = member({0: 1})
    later = view(2, held={0: 1, 1: 5})
    assert kinds(one.heard(later, 1.0, 5001.0, 11.0)) == [("lost", 0)]
    assert kinds(one.heard(later, 11.0, 5011.0, 11.1)) == [("assigned", 1)]
