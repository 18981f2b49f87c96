"""Which members keep a warm copy of each partition: in the end, and until the copies are warm."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from hashring.core.assignors.learner_warmups import Warmth
from hashring.core.assignors.quotas import quotas
from hashring.core.assignors.situation import GroupMember, GroupSituation, Owners


def standby_target(
    situation: GroupSituation,
    owners: list[str | None],
    members: Sequence[GroupMember],
    copies: int,
    *,
    settled: bool,
) -> list[list[str]]:
    """For each partition the members that should end as its standbys, evenly spread.

    A standby stays one; what is missing goes to the member furthest below its quota, owner by
    owner: so many members have a copy of what one owns, and share it if that one is gone. Once
    every partition is where it should end, single moves go from members above their quota to
    members below. An owner is no standby of its own, so the quotas cannot always be met; as each
    move brings the counts nearer to them, it ends, and what it ends with is left alone the next
    time.
    """
    order = {member.name: place for place, member in enumerate(members)}
    load = dict.fromkeys(order, 0)
    wanted: list[list[str]] = []
    for partition, owner in enumerate(owners):
        had = [n for n in situation.standbys.get(partition, ()) if n in order and n != owner]
        learner = situation.warming.get(partition)
        wanted.append(sorted(had, key=lambda n, new=learner: (n != new, order[n]))[:copies])  # type: ignore[misc]
        for name in wanted[-1]:
            load[name] += 1
    quota = quotas(members, len(owners) * copies, load)

    emptiest = [(load[name] - quota[name], order[name], name) for name in order]
    heapq.heapify(emptiest)
    for partition in sorted(range(len(owners)), key=lambda p: order[str(owners[p])]):
        passed_over = []
        while len(wanted[partition]) < copies:
            beyond, place, name = heapq.heappop(emptiest)
            if name != owners[partition] and name not in wanted[partition]:
                wanted[partition].append(name)
                load[name] += 1
                beyond += 1
            passed_over.append((beyond, place, name))
        for entry in passed_over:
            heapq.heappush(emptiest, entry)
    if settled:
        _even_standbys(wanted, owners, load, quotas(members, len(owners) * copies, load))
    return wanted


def _even_standbys(
    wanted: list[list[str]],
    owners: list[str | None],
    load: dict[str, int],
    quota: Mapping[str, int],
) -> None:
    under = [name for name in load if load[name] < quota[name]]
    for partition, names in enumerate(wanted):
        for place, name in enumerate(names):
            if load[name] <= quota[name]:
                continue
            for other in under:
                if other != owners[partition] and other not in names:
                    names[place] = other
                    load[name] -= 1
                    load[other] += 1
                    if load[other] >= quota[other]:
                        under.remove(other)
                    break
        if not under:
            return


def standby_interim(
    wanted: list[list[str]], interim: Owners, situation: GroupSituation, warmth: Warmth
) -> tuple[dict[int, set[str]], list[tuple[int, str]]]:
    """The standbys to have now, and the copies that wait for a warm-up.

    A warm copy stays until the one that replaces it is warm; a partition with too few warm
    copies gets cold ones, since there is nothing to lose.
    """
    alive = {member.name for member in situation.members}
    standbys: dict[int, set[str]] = {}
    moving: list[tuple[int, str]] = []
    for partition, names in enumerate(wanted):
        owner = interim[partition]
        final = [name for name in names if name != owner]
        copies = len(names)
        warm = [name for name in final if warmth.is_warm(name, partition)]
        kept = [
            name
            for name in (*situation.standbys.get(partition, ()), situation.owner_before(partition))
            if name is not None
            and name in alive
            and name != owner
            and name not in final
            and warmth.is_warm(name, partition)
        ]
        # The member that warms up goes on doing so, and no other in its place.
        learner = situation.warming.get(partition)
        cold = [name for name in final if name not in warm and name != learner]
        cold += [name for name in final if name not in warm and name == learner]
        now = list(dict.fromkeys([*warm, *kept, *cold]))[:copies]
        standbys[partition] = set(now)
        moving.extend((partition, name) for name in cold if name not in now)
    # Warm-ups under way come first.
    moving.sort(key=lambda move: situation.warming.get(move[0]) != move[1])
    return standbys, moving
