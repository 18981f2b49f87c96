"""What ``hashring doctor`` checks of partition groups: pure, from where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Final

from hashring.cli.doctor.findings import Finding, ok, problem
from hashring.core.groups.group_status import GroupStatus
from hashring.core.readable_numbers import counted
from hashring.core.safe_text import printable
from hashring.health import START_OR_FORGET, UNREAD_REMEDY, command_line, unread_reports

_SHOWN: Final = 8


def group_members(statuses: Mapping[str, GroupStatus]) -> Finding:
    """Whether no member is left in a group after some expired.

    Args:
        statuses: where each group stands, by name.
    """
    down = {
        name: found.expired
        for name, found in statuses.items()
        if not found.members and not found.unreadable
    }
    details = [f"{name}: {member} expired" for name, gone in down.items() for member in gone]
    count = sum(bool(gone) for gone in down.values())
    if not count:
        return ok("group members", f"no group lost all members ({_looked(statuses)})")
    return problem(
        "group members",
        f"no member is left in {counted(count, 'group')} after some expired: no partition of "
        f"{'it' if count == 1 else 'them'} has an owner",
        f"{START_OR_FORGET}: hashring group forget GROUP",
        _shown(details),
    )


def member_reports(statuses: Mapping[str, GroupStatus]) -> Finding:
    """Whether the reports of all members can be read.

    Args:
        statuses: where each group stands, by name.
    """
    details = [f"{name}: {member}" for name, at in statuses.items() for member in at.unreadable]
    if not details:
        return ok("member reports", f"every member's report can be read ({_looked(statuses)})")
    text = unread_reports(len(details))
    return problem("member reports", text, UNREAD_REMEDY, _shown(details))


def member_drains(forgotten: Mapping[str, Sequence[str]]) -> Finding:
    """Whether a drain of a member was forgotten.

    Args:
        forgotten: by group, the members that are drained for more than a day, without an end.
    """
    found = [(group, member) for group, members in forgotten.items() for member in members]
    if not found:
        return ok("member drains", f"no drain of a member was forgotten ({_looked(forgotten)})")
    details = [command_line("group undrain", group, member) for group, member in found]
    return problem(
        "member drains",
        f"{counted(len(found), 'member')} drained for more than a day, without an end",
        "lift what was forgotten; drain others again with --for",
        _shown(details),
    )


def _looked(groups: Sized) -> str:
    return counted(len(groups), "group")


def _shown(details: Sequence[str]) -> tuple[str, ...]:
    more = len(details) - _SHOWN
    return (*map(printable, details[:_SHOWN]), *((f"... and {more} more",) if more > 0 else ()))
