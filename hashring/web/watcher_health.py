"""The verdict on what the service watches: on one ring or group, and on all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from hashring.core.readable_numbers import counted
from hashring.errors import PermissionDenied
from hashring.health import Health, Reason, State, unreadable, worst, worst_first
from hashring.web.service import Service
from hashring.web.watcher_threads import Watcher
from hashring.web.watchers_by_name import MOST

_UNREADABLE: Final = Health.of(
    [
        Reason(
            State.UNKNOWN,
            "its key in Redis has no state that can be read",
            "remove the key if no group uses it",
        )
    ]
)
_LOST: Final = Health.of(
    [
        Reason(
            State.UNKNOWN,
            "Redis lost it while it ran; with their next heartbeats, those that run put it back",
            "if it stays so, start its processes",
        )
    ]
)
_UNREAD: Final = Health.of([Reason(State.UNKNOWN, "it has not been read yet", "")])


def verdict_of(watcher: Watcher[Any]) -> Health:
    """The verdict on what is watched: unknown while it cannot be read."""
    if watcher.failure is not None:
        return unreadable(watcher.failure.error)
    if watcher.lost:
        return _LOST
    if watcher.view is not None:
        return watcher.view.health  # type: ignore[no-any-return]
    return _UNREADABLE if watcher.looks else _UNREAD


def verdict_on_all(service: Service) -> Health:
    """The verdict on all rings and groups of a service, with the reasons of the worst, by name."""
    if service.failure is not None:
        return unreadable(service.failure.error)
    found, of_all = verdicts(service), doubts(service)
    # Without a doubt there is no verdict on it: beside it a stopped ring would not count.
    state = worst([*found.values(), *([Health.of(of_all)] if of_all else [])])
    wrong = sorted(found.items(), key=lambda item: (worst_first(item[1]), item[0]))
    reasons = [
        replace(reason, text=f"{name}: {reason.text}")
        for name, health in wrong
        for reason in health.reasons
        if health.state is state
    ]
    return Health(state, (*(doubt for doubt in of_all if doubt.state is state), *reasons))


def verdicts(service: Service) -> dict[str, Health]:
    """The verdict on each ring and group of a service, by its kind and name."""
    # One that is read rarely has not met the failure yet.
    blind = service.failure is not None
    rings, groups = service.listed()
    found = {f"ring {ring.name}": ring for ring in rings}
    watchers: dict[str, Watcher[Any]] = found | {f"group {group.name}": group for group in groups}
    return {
        name: Health(State.UNKNOWN) if blind else verdict_of(watcher)
        for name, watcher in watchers.items()
    }


def doubts(service: Service) -> list[Reason]:
    """Why a service does not know of everything there is on its Redis; empty when it does."""
    if service.failure is not None:
        return list(unreadable(service.failure.error).reasons)
    if not service.answered:
        return [Reason(State.UNKNOWN, "Redis has not responded yet")]
    if service.search_failure is not None:
        error = service.search_failure.error
        remedy = "let its Redis user call SCAN" if isinstance(error, PermissionDenied) else ""
        text = f"rings and groups cannot be looked for: {error}"
        return [Reason(State.UNKNOWN, text, remedy)]
    if not service.searched:
        return [Reason(State.UNKNOWN, "rings and groups are still being looked for")]
    if service.unwatched:
        what = counted(service.unwatched, "ring or group", "rings and groups")
        text = f"{what} not watched: a service watches {MOST} at most"
        return [Reason(State.UNKNOWN, text, "look at all of them", "hashring status")]
    return []
