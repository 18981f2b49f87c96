"""The verdict on what the service watches: on one ring or group, and on all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from hashring.health import Health, Reason, State, unreadable, worst, worst_first
from hashring.web.service import Service
from hashring.web.watchers import Watcher

_UNREADABLE: Final = Health.of(
    [
        Reason(
            State.UNKNOWN,
            "its key in Redis has no state that can be read",
            "remove the key if no group uses it",
        )
    ]
)


def verdict_of(watcher: Watcher[Any]) -> Health:
    """The verdict on what is watched: unknown while it cannot be read."""
    if watcher.failure is not None:
        return unreadable(watcher.failure.error)
    if watcher.view is not None:
        return watcher.view.health  # type: ignore[no-any-return]
    return _UNREADABLE if watcher.looks else Health(State.UNKNOWN)


def verdict_on_all(service: Service) -> Health:
    """The verdict on all rings and groups of a service, with the reasons of the worst, by name."""
    if service.failure is not None:
        return unreadable(service.failure.error)
    rings, groups = service.listed()
    found: dict[str, Health] = {f"ring {ring.name}": verdict_of(ring) for ring in rings}
    found |= {f"group {group.name}": verdict_of(group) for group in groups}
    state = worst(found.values())
    wrong = sorted(found.items(), key=lambda item: (worst_first(item[1]), item[0]))
    reasons = [
        replace(reason, text=f"{name}: {reason.text}")
        for name, health in wrong
        for reason in health.reasons
        if health.state is state
    ]
    return Health(state, tuple(reasons))
