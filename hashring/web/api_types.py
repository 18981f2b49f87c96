"""What the API answers and accepts, as types. Its description is made from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from hashring.core.hashing import RING_SIZE
from hashring.core.order_checks import LONGEST, LONGEST_NAME

Count = Annotated[int, Meta(ge=0)]
Point = Annotated[int, Meta(ge=0, lt=RING_SIZE)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
LONGEST_QUERIED_NAME = 512
"""Characters that the name of a ring, a group, a node or a member may have in a request."""

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_QUERIED_NAME)]
Text = Annotated[str, Meta(min_length=1)]
Shares = dict[str, float]

MOST_KEYS = 10_000
"""How many keys one request may ask for."""


class Answer(Struct, kw_only=True, forbid_unknown_fields=True):
    """An answer, or a part of one."""


class Error(Answer):
    """What was wrong, and what to do."""

    error: str


class FailureAnswer(Answer):
    """Why there is nothing newer.

    ``since`` is this machine's time, in seconds since 1970, at which Redis first failed to
    respond; ``error`` is what it or its client reported.
    """

    since: float
    error: str


class BalanceAnswer(Answer):
    """How even the shares are, and how even random points would make them."""

    peak_to_mean: float
    cv: float
    expected_peak_to_mean: float
    expected_cv: float


class DuplicatePoint(Answer):
    """A point that several nodes have."""

    point: Point
    nodes: list[str]


class ReasonAnswer(Answer):
    """One thing that is not as it should be, and what to do.

    ``remedy`` may be empty; ``command`` is the command line for it, without the address of Redis.
    """

    state: Literal["healthy", "stopped", "changing", "degraded", "unknown", "down"]
    text: str
    remedy: str
    command: str


class Status(Answer):
    """The verdict on everything, or on one ring or group: the worst state, and why."""

    state: Literal["healthy", "stopped", "changing", "degraded", "unknown", "down"]
    reasons: list[ReasonAnswer]


class Overview(Status):
    """The verdict on all rings and groups that are watched.

    ``rings`` and ``groups`` count them by state. ``exit_status`` is that of ``hashring status``:
    0 when all are healthy, stopped or changing, 1 when one is degraded, 2 when one is worse.
    """

    exit_status: Literal[0, 1, 2]
    rings: dict[str, int]
    groups: dict[str, int]


class DrainAnswer(Answer):
    """An order to drain a node; ``until`` is ``null`` when it has no end."""

    node: str
    by: str
    since: Time
    until: Time | None


class WeightAnswer(Answer):
    """An order that a node has another weight than its own."""

    node: str
    weight: float
    by: str
    since: Time


class RingAnswer(Answer):
    """A ring. ``drains`` and ``weights`` have orders about nodes that do not run, too."""

    ring: str
    status: Status
    at: Time
    epoch: Count
    fingerprint: str
    hash_algorithms: list[str]
    nodes: Count
    replicas: Count
    expired: list[str]
    drains: list[DrainAnswer]
    weights: list[WeightAnswer]
    agreeing: Count
    duplicate_points: list[DuplicatePoint]
    garbage: Count
    held: Count | None
    limit: Count | None
    unserved: Count
    balance: BalanceAnswer | None
    failure: FailureAnswer | None


class RingInList(Answer):
    """A ring in brief; ``null`` is what has not been read yet."""

    ring: str
    status: Status
    epoch: Count | None
    nodes: Count | None
    expired: Count | None
    replicas: Count | None
    agreeing: Count | None
    unserved: Count | None
    peak_to_mean: float | None
    changed_at: Time | None
    failure: FailureAnswer | None


class Rings(Answer):
    """Rings by name; ``next`` is what to give as ``after`` for those that follow.

    ``failure`` says why new rings are not found; ``null`` while Redis lists all of them.
    """

    rings: list[RingInList]
    next: str | None
    failure: FailureAnswer | None


class NodeAnswer(Answer):
    """A node.

    ``late``: half of its ttl has passed since its last heartbeat. ``away``: it stopped to come back
    before it expires. ``refusal`` is why Redis refuses it locks.
    """

    name: str
    host: str
    pid: str
    state: Literal["up", "late", "full", "drained", "away", "expired"]
    replicas: Count
    share: float
    fair_share: float
    delay: float
    expires_in: float
    expired: bool
    heartbeat_at: Time
    expires_at: Time
    ttl: float | None
    weight: float | None
    started: float | None
    version: str | None
    hash_algorithm: str | None
    held: Count | None
    limit: Count | None
    unserved: Count
    fingerprint: str | None
    sees: Literal["current", "older", "another", "-"]
    zone: str | None
    load: float | None
    drained: bool
    away: bool
    refusal: str | None


class Nodes(Answer):
    """The nodes of a ring, by name; ``next`` is what to give as ``after`` for the rest."""

    ring: str
    nodes: list[NodeAnswer]
    next: str | None
    failure: FailureAnswer | None


class LockAnswer(Answer):
    """Who holds a key. ``token`` is the fencing token, in decimal."""

    node: str
    token: str
    expires_in: float
    waiter: str | None


class Owner(Answer):
    """Who owns a key, and who would next."""

    ring: str
    key: str
    point: Point
    owner: str | None
    next: list[str]
    hash_algorithm: str
    epoch: Count
    lock: LockAnswer | None
    lock_error: str | None
    failure: FailureAnswer | None


class OwnersAsked(Answer):
    """At most 10,000 keys to look up on one ring."""

    ring: Name
    keys: Annotated[list[Text], Meta(max_length=MOST_KEYS)]


class OwnersAnswer(Answer):
    """The owner of each key, in the order of the question."""

    ring: str
    epoch: Count
    hash_algorithm: str
    owners: list[str | None]
    failure: FailureAnswer | None


class ChangeAnswer(Answer):
    """An entry of a ring's history."""

    id: str
    at: Time
    kind: str
    by: str
    nodes: list[str]
    points: list[Point]
    reason: str
    epoch: Count | None
    keys: str | None


class Changes(Answer):
    """The end of a ring's history, oldest first."""

    ring: str
    changes: list[ChangeAnswer]
    failure: FailureAnswer | None


class FlowAnswer(Answer, rename={"source": "from"}):
    """A part of the ring that moves from one node to another."""

    source: str | None
    to: str | None
    part: float


class PlanAnswer(Answer):
    """What moves, and what each node owns before and after, as parts of the ring.

    ``least`` would move with exactly fair shares. If ``exact`` is false, nodes add points that
    Redis does not know, and the figures are an example. ``note`` says why nothing moves, or what
    must be accepted before the order is given.
    """

    ring: str
    epoch: Count
    moved: float
    least: float
    exact: bool
    note: str | None
    flows: list[FlowAnswer]
    before: Shares
    after: Shares
    failure: FailureAnswer | None


class WaitAnswer(Answer):
    """Something a group waits for; ``until`` is Redis time, in seconds since 1970."""

    kind: str
    member: str | None
    partition: Count | None
    until: float | None


class MemberAnswer(Answer):
    """A member of a group; ``active`` if it has a partition, otherwise it stands by."""

    name: str
    state: str
    partitions: list[Count]
    active: bool
    expires_in: float


class OrderAnswer(Answer):
    """What is ordered about a member.

    ``by``, ``since`` and ``until`` are those of a drain; ``until`` is ``null`` when it has no end.
    ``weight`` and ``weighed_by`` are ``null`` when the member has its own.
    """

    member: str
    by: str | None
    since: Time | None
    drained: bool
    until: Time | None
    weight: float | None
    weighed_by: str | None


class Group(Answer):
    """A partition group.

    ``owners`` has the owner of each partition, by number; ``orders`` has those about members that
    do not run, too. Without members, ``phase`` is as they left it, and ``waits`` is empty.
    """

    group: str
    status: Status
    at: Time
    phase: Literal["Ready", "Holddown", "Rebalancing"]
    generation: Count
    partitions: Count
    until: float | None
    latest: float | None
    access: Literal["non-exclusive", "exclusive"]
    waits: list[WaitAnswer]
    unowned: list[Count]
    draining: list[Count]
    members: list[MemberAnswer]
    orders: list[OrderAnswer]
    blocking: list[str]
    terms: dict[str, Any]
    owners: list[str | None]
    failure: FailureAnswer | None


class GroupInList(Answer):
    """A group in brief; ``null`` is what has not been read yet."""

    group: str
    status: Status
    phase: str | None
    generation: Count | None
    partitions: Count | None
    members: Count | None
    unowned: Count | None
    failure: FailureAnswer | None


class Groups(Answer):
    """Groups by name; ``next`` and ``failure`` are as for rings."""

    groups: list[GroupInList]
    next: str | None
    failure: FailureAnswer | None


class MoveAnswer(Answer):
    """A partition that changes hands."""

    partition: Count
    before: str | None
    after: str | None
    reason: str
    handoff: bool
    warm_up: bool
    why: str


class GroupPlan(Answer):
    """What moves, in how many rounds, and how many partitions each member has.

    ``note`` is as in PlanAnswer.
    """

    group: str
    note: str | None
    moves: list[MoveAnswer]
    rounds: Count
    delay: float
    longest: float
    before: dict[str, Count]
    after: dict[str, Count]
    failure: FailureAnswer | None


class ActionAsked(Answer):
    """What every action needs."""

    by: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=LONGEST_NAME,
            description="Who asks; the history shows it. The name that a trusted proxy gives "
            "counts instead, and then this one need not be there.",
        ),
    ]


class NodeAsked(ActionAsked):
    """A node."""

    ring: Name
    node: Name


class MemberAsked(ActionAsked):
    """A member."""

    group: Name
    member: Name


class RemoveAsked(NodeAsked):
    """A node to take off a ring."""


class ReleaseAsked(ActionAsked):
    """A lock to take away from its holder, by its fencing token."""

    ring: Name
    key: Text
    token: Annotated[str, Meta(pattern="^[0-9]{1,20}$")]


class ForgetAsked(ActionAsked):
    """A ring that was stopped for good."""

    ring: Name


class RebalanceAsked(ActionAsked):
    """A group that shall move partitions without the rest of its delay."""

    group: Name


class GroupForgetAsked(ActionAsked):
    """A group that was stopped for good."""

    group: Name


Seconds = Annotated[float, Meta(gt=0, le=LONGEST)]


class DrainAsked(NodeAsked):
    """A node that is to run on and own nothing.

    ``seconds`` is for how long, ``null`` until somebody lifts it; ``force`` orders it although no
    other node is left.
    """

    seconds: Seconds | None = None
    force: bool = False


class UndrainAsked(NodeAsked):
    """A drained node that is to own keys again."""


class WeightAsked(NodeAsked):
    """A node's new weight; ``null`` is its own."""

    weight: Annotated[float, Meta(gt=0)] | None = None


class GroupDrainAsked(MemberAsked):
    """A member that is to hand over what it has.

    ``seconds`` is for how long, ``null`` until somebody lifts it; ``force`` orders it although no
    other member is left.
    """

    seconds: Seconds | None = None
    force: bool = False


class GroupUndrainAsked(MemberAsked):
    """A drained member that is to have partitions again."""


class GroupWeightAsked(MemberAsked):
    """A member's new weight; ``null`` is the one that it started with."""

    weight: Annotated[float, Meta(gt=0)] | None = None


class Done(Answer):
    """What was done; ``event`` is the id of the history's entry about it, if it left one."""

    done: str
    event: str | None


class Alive(Answer):
    """The process lives."""

    status: str


class Ready(Answer):
    """Whether the service can answer; ``since`` is given while Redis does not respond."""

    status: str
    redis: str
    since: float | UnsetType = UNSET
    fault: str | UnsetType = UNSET
