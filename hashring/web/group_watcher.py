"""Read a partition group once for all visitors."""

from __future__ import annotations

from typing import Final

from hashring.metrics import FleetCollector
from hashring.store.discovery import Found
from hashring.store.group.commands import DECISIONS_KEPT
from hashring.store.group.decision_history import Decision, newest_decisions
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.store.redis_store import RedisStore
from hashring.web.group_view import GroupView
from hashring.web.last_hour import LastHour
from hashring.web.watcher_threads import FoundWatcher

DECISIONS: Final = 20
"""How many of a group's last decisions a watcher keeps."""


class GroupWatcher(FoundWatcher[GroupView]):
    """Watches a partition group; sees ``None`` while there is none.

    Attributes:
        new_decisions: those that the last look brought, and perhaps some before, newest first.
    """

    def __init__(self, store: RedisStore, name: str) -> None:
        self.keys = group_keys(name)
        super().__init__(store, Found("group", name), self.keys.channel)
        self.hour = LastHour(min, max, max, max)
        self._decisions: tuple[Decision, ...] = ()
        self._tag = ""
        self.new_decisions: tuple[Decision, ...] = ()

    @property
    def is_gone(self) -> bool:
        """Whether it has looked, and there is no such group."""
        return self.failure is None and self.looks > 0 and self.view is None

    def _look(self) -> GroupView | None:
        """Read the group, and its last decisions when there is a new one."""
        reading = self._store.run(read(self.keys))
        state = reading.standing()
        before = self.view
        ran = self.lost or (before is not None and before.status.has_members)
        self.lost = state is None and ran
        if state is None:
            return None
        new: tuple[Decision, ...] = ()
        if reading.tag != self._tag or not self._decisions:
            # Each decision has the next number: after an outage many may be new.
            known = self._decisions[0].generation if self._decisions else state.generation
            count = DECISIONS + min(DECISIONS_KEPT, max(0, state.generation - known))
            new = tuple(newest_decisions(self._store, self.keys, count))
            self._decisions, self._tag = new[:DECISIONS], reading.tag
        self.new_decisions = new
        return GroupView(self.name, reading, state, self._decisions)

    def report(self, metrics: FleetCollector) -> None:
        """Report what was seen last to the metrics."""
        if self.view is not None:
            metrics.saw_group(self.view.metrics_reading(self.new_decisions))

    def _note(self, view: GroupView | None) -> None:
        if view is not None:
            found, handoffs = view.status, len(view.state.handoffs)
            self.hour.add(
                view.now, len(found.members), len(found.unowned), handoffs, found.generation
            )
