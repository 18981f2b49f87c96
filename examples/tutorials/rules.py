"""An assignor of one's own: the eldest member has two partitions that must stay together."""

from hashring import GroupSituation

PINNED = {0, 1}


def pinned_first(situation: GroupSituation) -> dict[str, list[int]]:
    """The eldest member has the pinned partitions; the others take turns with the rest."""
    members = [member.name for member in situation.candidates()]
    if not members:
        return {}
    target: dict[str, list[int]] = {name: [] for name in members}
    target[members[0]] += sorted(PINNED)
    others = members[1:] or members
    for partition in range(situation.partitions):
        if partition not in PINNED:
            target[others[partition % len(others)]].append(partition)
    return target
