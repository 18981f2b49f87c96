"""What ``hashring doctor`` checks of partition groups: pure, from their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hashring.cli.doctor.findings import Finding, ok, problem
from hashring.core.printable import printable
from hashring.core.readable import counted
from hashring.health import command_line

_SHOWN: Final = 8


def member_drains(forgotten: Mapping[str, Sequence[str]]) -> Finding:
    """Whether a drain of a member was forgotten.

    Args:
        forgotten: by group, the members that are drained for more than a day, without an end.
    """
    found = [(group, member) for group, members in forgotten.items() for member in members]
    if not found:
        looked = counted(len(forgotten), "group")
        return ok("member drains", f"no drain of a member was forgotten ({looked})")
    details = tuple(
        printable(command_line("group undrain", group, member)) for group, member in found[:_SHOWN]
    )
    if len(found) > _SHOWN:
        details += (f"... and {len(found) - _SHOWN} more",)
    return problem(
        "member drains",
        f"{counted(len(found), 'member')} drained for more than a day, without an end",
        "lift what was forgotten; drain others again with --for",
        details,
    )
