"""The API's answers, made from what the service has read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar

import msgspec

from hashring.core.groups.group_foresight import GroupForesight
from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.core.ring_plan import ring_plan
from hashring.health import Health, State, exit_status, worst, worst_first
from hashring.store.ring.ring_events import RingEvent, event_json, iso_time
from hashring.web import api_types as api
from hashring.web.group_view import GroupView
from hashring.web.group_watcher import GroupWatcher
from hashring.web.key_lookup import Lookup
from hashring.web.ring_view import NodeView, RingView
from hashring.web.ring_watcher import RingWatcher
from hashring.web.service import Service
from hashring.web.watcher_health import doubts, verdict_of, verdicts
from hashring.web.watcher_threads import Failure

A = TypeVar("A")

MOST_MOVES: Final = 10_000
"""How many moves or flows a plan lists; the greatest come first."""


def failure(watcher: RingWatcher | GroupWatcher) -> api.FailureAnswer | None:
    """Why there is nothing newer."""
    return _failure(watcher.failure)


def search_failure(service: Service) -> api.FailureAnswer | None:
    """Why new rings and groups are not found."""
    return _failure(service.failure or service.search_failure)


def _failure(found: Failure | None) -> api.FailureAnswer | None:
    return None if found is None else api.FailureAnswer(since=found.since, error=str(found.error))


def status(health: Health) -> api.Status:
    """A verdict."""
    return _alike(health, api.Status)


def _alike(found: Any, kind: type[A]) -> A:
    """An answer that says what an object's attributes of the same names say."""
    return msgspec.convert(found, kind, from_attributes=True)


def overview(service: Service) -> api.Overview:
    """The verdict on everything."""
    found, of_all = verdicts(service), Health.of(doubts(service))
    reasons = [
        *of_all.reasons,
        *(
            replace(reason, text=f"{name}: {reason.text}")
            for name, health in sorted(found.items(), key=lambda item: worst_first(item[1]))
            if health.state not in (State.HEALTHY, State.STOPPED)
            for reason in health.reasons
        ),
    ]
    every = [of_all, *found.values()]
    return api.Overview(
        state=worst(every if of_all.reasons else found.values()).value,
        reasons=_alike(reasons[:100], list[api.ReasonAnswer]),
        exit_status=exit_status(every),
        rings=_tally(found, "ring "),
        groups=_tally(found, "group "),
    )


def _tally(found: Mapping[str, Health], kind: str) -> dict[str, int]:
    return Counter(health.state.value for name, health in found.items() if name.startswith(kind))


# --- rings ------------------------------------------------------------------------------------


def ring(watcher: RingWatcher, view: RingView) -> api.RingAnswer:
    """A ring."""
    return api.RingAnswer(
        ring=view.name,
        status=status(verdict_of(watcher)),
        at=iso_time(view.now),
        epoch=view.epoch,
        fingerprint=view.ring.fingerprint,
        hash_algorithms=list(view.algorithms),
        nodes=len(view.live),
        replicas=len(view.ring),
        expired=[node.name for node in view.expired],
        drains=[
            api.DrainAnswer(
                node=name, by=order.by, since=iso_time(order.since), until=_time(order.until)
            )
            for name, order in view.drains.items()
        ],
        weights=[
            api.WeightAnswer(
                node=name, weight=order.weight, by=order.by, since=iso_time(order.since)
            )
            for name, order in sorted(view.snapshot.weights.items())
        ],
        agreeing=view.agreeing,
        duplicate_points=[
            api.DuplicatePoint(point=point, nodes=list(nodes)) for point, nodes in view.duplicates
        ],
        garbage=len(view.snapshot.garbage),
        held=view.held,
        limit=view.limit,
        unserved=view.unserved,
        balance=None if view.balance is None else _alike(view.balance, api.BalanceAnswer),
        failure=failure(watcher),
    )


def ring_in_list(watcher: RingWatcher) -> api.RingInList:
    """A ring in brief."""
    view = watcher.view
    return api.RingInList(
        ring=watcher.name,
        status=status(verdict_of(watcher)),
        epoch=view.epoch if view else None,
        nodes=len(view.live) if view else None,
        expired=len(view.expired) if view else None,
        replicas=len(view.ring) if view else None,
        agreeing=view.agreeing if view else None,
        unserved=view.unserved if view else None,
        peak_to_mean=view.balance.peak_to_mean if view and view.balance else None,
        changed_at=iso_time(view.events[-1].at) if view and view.events else None,
        failure=failure(watcher),
    )


def node(view: NodeView) -> api.NodeAnswer:
    """A node."""
    facts: dict[str, Any] = dict(view.facts.__dict__)
    return api.NodeAnswer(
        **facts | {"sees": view.facts.sees.value},
        state=view.state.value,
        fair_share=view.fair,
        heartbeat_at=iso_time(view.beat_at),
        expires_at=iso_time(view.expires_at),
    )


def owner(watcher: RingWatcher, view: RingView, found: Lookup) -> api.Owner:
    """What is known of a key."""
    lock = found.lock
    return api.Owner(
        ring=view.name,
        key=found.key,
        point=found.point,
        owner=found.owner,
        next=list(found.next),
        hash_algorithm=found.algorithm,
        epoch=view.epoch,
        lock=None
        if lock is None
        else api.LockAnswer(
            node=lock.node,
            token=str(lock.token),
            expires_in=lock.expires_in,
            waiter=lock.waiter or None,
        ),
        lock_error=found.lock_error or None,
        failure=failure(watcher),
    )


def plan(
    watcher: RingWatcher,
    view: RingView,
    after: Ring,
    *,
    exact: bool | None = None,
    note: str = "",
) -> api.PlanAnswer:
    """What moves when a ring becomes another; see :func:`hashring.core.ring_plan.ring_plan`."""
    found = ring_plan(view.ring, after, exact=exact)
    return api.PlanAnswer(
        ring=view.name,
        epoch=view.epoch,
        moved=found.moved,
        least=found.least,
        exact=found.exact,
        note=note or None,
        flows=[
            api.FlowAnswer(source=before, to=to, part=part)
            for before, to, part in found.flows[:MOST_MOVES]
        ],
        before=_shares(view.ring),
        after=_shares(after),
        failure=failure(watcher),
    )


def change(event: RingEvent) -> api.ChangeAnswer:
    """An entry of a ring's history."""
    return api.ChangeAnswer(**event_json(event))


def _time(at: float | None) -> str | None:
    return None if at is None else iso_time(at)


def _shares(of: Ring) -> dict[str, float]:
    return {name: points / RING_SIZE for name, points in of.shares.items()}


# --- groups -----------------------------------------------------------------------------------


def group(watcher: GroupWatcher, view: GroupView) -> api.Group:
    """A partition group."""
    found = view.status
    return api.Group(
        group=view.name,
        status=status(verdict_of(watcher)),
        at=iso_time(view.now),
        phase=found.phase.value,
        generation=found.generation,
        partitions=found.partitions,
        until=found.until,
        latest=found.latest,
        access=found.access,  # type: ignore[arg-type]
        waits=_alike(found.waits, list[api.WaitAnswer]),
        unowned=list(found.unowned),
        draining=list(found.draining),
        members=_alike(found.members, list[api.MemberAnswer]),
        orders=[
            api.OrderAnswer(
                member=name,
                by=order.by or None,
                since=iso_time(order.since) if order.drained else None,
                drained=order.drained,
                until=_time(order.until),
                weight=order.weight,
                weighed_by=order.weighed_by or None,
            )
            for name, order in sorted(found.orders.items())
        ],
        blocking=list(found.blocking),
        terms=asdict(view.state.terms),
        owners=[cell.owner for cell in view.cells],
        failure=failure(watcher),
    )


def group_in_list(watcher: GroupWatcher) -> api.GroupInList:
    """A group in brief."""
    found = watcher.view.status if watcher.view else None
    return api.GroupInList(
        group=watcher.name,
        status=status(verdict_of(watcher)),
        phase=found.phase.value if found else None,
        generation=found.generation if found else None,
        partitions=found.partitions if found else None,
        members=len(found.members) if found else None,
        unowned=len(found.unowned) if found else None,
        failure=failure(watcher),
    )


def group_plan(watcher: GroupWatcher, found: GroupForesight, note: str = "") -> api.GroupPlan:
    """What moves in a group."""
    return api.GroupPlan(
        group=watcher.name,
        note=note or found.unowned or None,
        moves=_alike(found.moves[:MOST_MOVES], list[api.MoveAnswer]),
        rounds=found.rounds,
        delay=found.delay,
        longest=found.longest,
        before=dict(found.before),
        after=dict(found.after),
        failure=failure(watcher),
    )
