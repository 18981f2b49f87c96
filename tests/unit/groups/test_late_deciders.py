"""An assignor may answer after its member has stopped and started again."""

from __future__ import annotations

from queue import Queue

import pytest

from hashring import PartitionGroup
from hashring.errors import AssignorError
from hashring.protocol.group.group_decider import Decided
from hashring.store.memory_store import MemoryServer, MemoryStore


def test_what_a_decider_of_an_earlier_stay_reports_is_of_no_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = PartitionGroup(MemoryStore(MemoryServer()), "orders", partitions=4)
    group.start()
    earlier = group._group.decider
    group.stop()
    group.start()
    try:
        heard: Queue[Decided] = Queue()
        monkeypatch.setattr(group._group, "decided", heard.put)
        late = AssignorError("balanced", "raised late")
        for decider, number in ((earlier, -1), (group._group.decider, -2)):
            decider._report(Decided(number, None, late, news=False, due=None))
        while (decided := heard.get(timeout=10)).number >= 0:
            pass
        assert decided.number == -2
    finally:
        monkeypatch.undo()
        group.stop()
