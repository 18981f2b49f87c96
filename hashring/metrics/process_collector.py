"""Metrics of the nodes, and of the members of groups, that run in this process."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hashring.errors import ConfigError
from hashring.groups.base_member import BaseMember
from hashring.metrics.metric_families import PROCESS_METRICS, Families, label, one_hot
from hashring.node.base_node import Node
from hashring.protocol.node.node_states import NodeState

_STATES: Final = tuple(state.value for state in NodeState)
_SILENT: Final = (NodeState.NEW, NodeState.STOPPED)
_COUNTERS: Final = (
    "heartbeats",
    "failures",
    "fetches",
    "gaps",
    "subscriptions",
    "bad_messages",
    "fences",
    "losses",
)


class ProcessCollector(Collector):
    """The metrics of nodes and members of this process; see :func:`register`.

    Holds none of them alive. A node has series while it runs, and when it has ended otherwise than
    by ``stop()``; a member while it runs; neither in a forked child, whose they are not. No call
    to Redis is made. Of several with the same name on the same ring, the one added last is shown.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sources: list[weakref.ref[Node | BaseMember]] = []

    def add(self, source: Node | BaseMember) -> None:
        """Show a node or member; adding it again changes nothing.

        Raises:
            ConfigError: it is neither.
        """
        if not isinstance(source, Node | BaseMember):
            raise ConfigError(
                "source",
                source,
                "give a node or a member: a RingNode, a PartitionGroup, or an asyncio one",
            )
        with self._lock:
            self._sources = [*self._others(source), weakref.ref(source)]

    def remove(self, source: Node | BaseMember) -> None:
        """Show it no more; one that is not shown changes nothing."""
        with self._lock:
            self._sources = self._others(source)

    def _others(self, source: Node | BaseMember) -> list[weakref.ref[Node | BaseMember]]:
        # By identity: a subclass may define when its nodes are equal.
        return [ref for ref in self._sources if (each := ref()) is not None and each is not source]

    def describe(self) -> Iterator[Metric]:
        """The metrics without values."""
        return iter(Families(PROCESS_METRICS))

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        with self._lock:
            sources = list(self._sources)
        nodes: dict[tuple[str, ...], Node] = {}
        members: dict[tuple[str, ...], BaseMember] = {}
        for ref in sources:
            source = ref()
            if isinstance(source, Node):
                if source.state not in _SILENT and not source.inherited:
                    status = source.status
                    nodes[label(status.ring), label(status.name)] = source
            elif source is not None and source.running:
                members[label(source.name), label(source.member)] = source
        families = Families(PROCESS_METRICS)
        for labels, node in nodes.items():
            _add_node(families, labels, node)
        for labels, member in members.items():
            _add_member(families, labels, member)
        return iter(families)


def _add_node(families: Families, labels: tuple[str, ...], node: Node) -> None:
    status = node.status

    def add(name: str, value: float | None) -> None:
        families.add(f"hashring_node_{name}", labels, value)

    for state, holds in one_hot(_STATES, status.state.value).items():
        families.add("hashring_node_state", (*labels, state), holds)
    add("share_ratio", status.share)
    add("peers", max(0, status.node_count - 1))
    add("epoch", status.epoch)
    add("heartbeat_age_seconds", status.last_heartbeat)
    add("heartbeat_duration_seconds", status.heartbeat_took)
    add("ttl_seconds", node.ttl)
    add("failing_seconds", status.failing_for or 0.0)
    add("garbage_members", status.garbage)
    add("keys_held", status.held)
    add("keys_limit", status.limit)
    if status.held is not None:
        add("keys_waiting", status.waiting)
        add("keys_refused", status.refused)
        add("keys_unserved", status.unserved)
    for counter in _COUNTERS:
        add(counter, getattr(status, counter))
    for reason, count in sorted(status.changes.items()):
        families.add("hashring_node_changes", (*labels, reason), count)


def _add_member(families: Families, labels: tuple[str, ...], member: BaseMember) -> None:
    families.add("hashring_member_partitions_held", labels, len(member.held))
    families.add("hashring_member_partitions", labels, member.partitions)
    families.add("hashring_member_failing", labels, float(member.error is not None))


_collectors: weakref.WeakKeyDictionary[CollectorRegistry, ProcessCollector] = (
    weakref.WeakKeyDictionary()
)
_registering: Final = threading.Lock()


def register(source: Node | BaseMember, registry: CollectorRegistry = REGISTRY) -> None:
    """Show a node, or a member of a partition group, in a registry.

    Its series end when it is stopped, when nobody holds it any more, or with :func:`unregister`.

    Raises:
        ConfigError: ``source`` is none of the two.
    """
    with _registering:
        collector = _collectors.get(registry)
        known = collector is not None
        collector = collector or ProcessCollector()
        collector.add(source)
        if not known:
            registry.register(collector)
            _collectors[registry] = collector


def unregister(source: Node | BaseMember, registry: CollectorRegistry = REGISTRY) -> None:
    """Show it no more; one that was not registered changes nothing."""
    with _registering:
        collector = _collectors.get(registry)
    if collector is not None:
        collector.remove(source)
