"""What the tests of programs that use a ring need: no Redis, no waiting.

::

    from hashring import RingNode
    from hashring.testing import MemoryStore

    store = MemoryStore()                       # in place of a Redis client
    with RingNode(store, "accounts", name="a") as a, RingNode(store, "accounts", name="b") as b:
        a.update()                              # otherwise it learns of b a moment later
        assert a.contains("hello") != b.contains("hello")

It serves :class:`hashring.AsyncRingNode`, :class:`hashring.PartitionGroup`, its asyncio form and
the lease challenge just the same.

``python -m hashring.testing.simulator`` plays random histories of faults on the node's protocol.
"""

from hashring.store.embedded_server import RedisServer, shared_server
from hashring.store.memory_store import MemoryServer, MemoryStore
from hashring.testing.clock import ManualClock
from hashring.testing.ring_literals import ring_of

__all__ = ["ManualClock", "MemoryServer", "MemoryStore", "RedisServer", "ring_of", "shared_server"]
