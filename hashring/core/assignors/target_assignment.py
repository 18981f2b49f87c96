"""What an assignor answers: the target assignment, checked.

An assignor is a pure function from a :class:`.GroupSituation` to a :class:`TargetAssignment`. It
decides where partitions *should* be; moving them there without two owners and without losing work
is the business of :mod:`hashring.core.groups.next_state`, the same for every assignor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from hashring.core.assignors.situation import GroupSituation, Owners
from hashring.core.value_checks import plain_whole
from hashring.errors import AssignorError, HashringError


@dataclass(frozen=True)
class TargetAssignment:
    """What an assignor wants.

    Attributes:
        owners: where every partition should end.
        interim: where it should be now: equal to ``owners``, unless a partition has to wait at
            its present owner until the next one is warm.
        warmups: for a partition that waits, the member that is to warm up for it now.
        standbys: for each partition the members that are to keep a warm copy of it, in a tuple or
            list.
        for_load: the partitions that move for their load alone. Those that ``interim`` leaves where
            they are wait for moves of this minute to be over, not for anybody to warm up.
    """

    owners: Owners
    interim: Owners
    warmups: Mapping[int, str] = field(default_factory=dict)
    standbys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    for_load: frozenset[int] = frozenset()

    @classmethod
    def at_once(cls, owners: Iterable[str | None]) -> TargetAssignment:
        """A target that nothing has to wait for."""
        whole = tuple(owners)
        return cls(whole, whole)

    @property
    def settled(self) -> bool:
        """Whether there is nothing more to come after this."""
        # Mostly they are the same tuple; comparing that looks at every partition.
        return (self.owners is self.interim or self.owners == self.interim) and not self.warmups


class Assignor(Protocol):
    """A rule for who should own what.

    It must be deterministic, must not depend on the order of ``members`` or of any mapping, must
    give every partition exactly one of the members as long as there are members, and must come
    to rest: given its own answer as ``previous``, it answers the same.

    One whose attribute ``lasting`` is true is not asked again while its answer is carried out, one
    partition after the other: the answer stays as good as a new one would be.
    """

    @property
    def name(self) -> str:
        """What members of one group must agree on; it tells the rule and its settings."""
        ...

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        """Who should own what."""
        ...


AssignFunction = Callable[[GroupSituation], Mapping[str, Iterable[int]]]
"""The simplest assignor of one's own: for each member its partitions."""


class FunctionAssignor:
    """A function of one's own as an assignor.

    Args:
        function: from a situation to the partitions of each member; a member without partitions
            may be left out.
        name: what members agree on; the function's own name by default.
    """

    def __init__(self, function: AssignFunction, name: str | None = None) -> None:
        self._function = function
        self.name: str = name or getattr(function, "__name__", "") or type(function).__name__

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        """Who should own what.

        Raises:
            AssignorError: the function's answer is no assignment.
        """
        answer = self._function(situation)
        if not isinstance(answer, Mapping):
            raise AssignorError(
                self.name, f"returned {type(answer).__name__}, not a mapping of members"
            )
        owners: list[str | None] = [None] * situation.partitions
        for member, partitions in answer.items():
            for given in partitions:
                # Also a number of numpy's.
                partition = plain_whole(given)
                if partition is None or not 0 <= partition < situation.partitions:
                    raise AssignorError(
                        self.name,
                        f"gave partition {given!r} to {member!r}, but partitions are numbered "
                        f"0 to {situation.partitions - 1}",
                        member=member,
                    )
                if owners[partition] is not None:
                    raise AssignorError(
                        self.name,
                        f"gave partition {partition} twice, to {owners[partition]!r} and to "
                        f"{member!r}",
                        partition=partition,
                        member=member,
                    )
                owners[partition] = member
        return TargetAssignment.at_once(owners)


def setting_text(value: float) -> str:
    """A setting as its assignor's name has it: short, but no two settings have the same."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def checked_target(assignor: Assignor, situation: GroupSituation) -> TargetAssignment:
    """The assignor's answer, when it is a whole one.

    Without members there is no owner to name, and the assignor is not asked.

    Raises:
        AssignorError: the assignor raised, or its answer names a member that is not there, leaves
            a partition out, moves one to a member that must get nothing new, or is no target.
    """
    if not situation.members:
        return TargetAssignment.at_once([None] * situation.partitions)
    try:
        target = assignor.assign(situation)
    except HashringError:
        raise
    except Exception as error:
        raise AssignorError(assignor.name, f"raised {type(error).__name__}: {error}") from error
    if not isinstance(target, TargetAssignment):
        raise AssignorError(
            assignor.name,
            f"returned {type(target).__name__}, not a TargetAssignment "
            f"(see TargetAssignment.at_once)",
        )
    try:
        return _plain_target(assignor.name, target, situation)
    except HashringError:
        raise
    except Exception as error:  # an attribute of another type
        what = f"returned a TargetAssignment that is none: {type(error).__name__}: {error}"
        raise AssignorError(assignor.name, what) from error


def _plain_target(
    assignor: str, target: TargetAssignment, situation: GroupSituation
) -> TargetAssignment:
    """The answer, checked, in tuples, dicts and sets that the assignor cannot change any more.

    What is decided goes to Redis as JSON, which knows no other collections.
    """
    names = {member.name for member in situation.members}
    takers = {member.name for member in situation.candidates()}
    owners = interim = _in_order(assignor, "the owners", target.owners)
    _check_owners(assignor, owners, situation, names, takers)
    if target.interim is not target.owners:
        interim = _in_order(assignor, "the interim owners", target.interim)
        _check_owners(assignor, interim, situation, names, takers)
    number = partial(_number, assignor, situation.partitions)
    warmups = {number(p, "wants partition {!r} warm"): m for p, m in target.warmups.items()}
    standbys = {
        number(p, "wants partition {!r} warm"): members
        if type(members) is tuple
        else _in_order(assignor, f"the standbys of partition {p}", members, str)
        for p, members in target.standbys.items()
    }
    for partition, member in warmups.items():
        _check_known(assignor, partition, member, names)
    for partition, members in standbys.items():
        if not names.issuperset(members):  # faster than one by one
            for member in members:
                _check_known(assignor, partition, member, names)
    for_load = frozenset(number(p, "moves partition {!r} for its load") for p in target.for_load)
    same = owners is target.owners and interim is target.interim
    if same and not (warmups or standbys or for_load):
        return target  # as most are
    return TargetAssignment(owners, interim, warmups, standbys, for_load)


def _in_order(
    assignor: str, what: str, given: Iterable[Any], *refused: type[object]
) -> tuple[Any, ...]:
    """Members as a tuple. A set has another order in each process; one text is no list of names."""
    if isinstance(given, (Set, Mapping, *refused)):
        raise AssignorError(
            assignor,
            f"names {what} in a {type(given).__name__}: give a list or tuple of members",
        )
    return tuple(given)


def _number(assignor: str, partitions: int, given: object, wish: str) -> int:
    """The number of a partition; also one of numpy's."""
    number = given if type(given) is int else plain_whole(given)  # there may be very many
    if number is None or not 0 <= number < partitions:
        raise AssignorError(
            assignor,
            f"{wish.format(given)}, but partitions are numbered 0 to {partitions - 1}",
        )
    return number


def _check_owners(
    assignor: str, owners: Owners, situation: GroupSituation, names: set[str], takers: set[str]
) -> None:
    if len(owners) != situation.partitions:
        raise AssignorError(
            assignor, f"assigned {len(owners)} partitions, but there are {situation.partitions}"
        )
    if takers.issuperset(owners):
        return
    for partition, member in enumerate(owners):
        if member is None:
            raise AssignorError(
                assignor, f"left partition {partition} without a member", partition=partition
            )
        _check_known(assignor, partition, member, names)
        if member not in takers and situation.owner_before(partition) != member:
            raise AssignorError(
                assignor,
                f"gave partition {partition} to {member!r}, which must get nothing new: choose "
                f"among GroupSituation.candidates()",
                partition=partition,
                member=member,
            )


def _check_known(assignor: str, partition: int, member: str, names: set[str]) -> None:
    if member not in names:
        raise AssignorError(
            assignor,
            f"gave partition {partition} to {member!r}, which is not a member; the members are "
            f"{', '.join(sorted(names)[:10])}{', ...' if len(names) > 10 else ''}",
            partition=partition,
            member=member,
        )
