"""The states of a node, of what it sees of the ring, and of its claim to its name.

A node's state (:data:`NODE_LIFE`). Only a ``live`` node owns its ranges; in all others it owns
nothing. In ``drained`` it may still work on keys that it has locked, for the time of a handoff:

{NODE_LIFE}

Its copy of the ring (:data:`SIGHT`). In ``behind``, ``deaf`` and ``uncertain`` the ring may differ
from it, and the node reads the ring soon:

{SIGHT}

Its claim to its name and its points (:data:`CLAIM`). Each ``start()`` begins one: in ``returning``
when it may have stopped to come back and knows only its own ranges, in ``looking`` when the points
depend on what is on the ring, else in ``claiming``:

{CLAIM}
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from hashring.core.state_table import StateTable, with_tables


class NodeState(str, Enum):
    """Where a node is in its life: the first table in :mod:`hashring.protocol.node.node_states`."""

    NEW = "new"
    JOINING = "joining"
    LIVE = "live"
    DRAINED = "drained"
    FENCED = "fenced"
    LEAVING = "leaving"
    STOPPED = "stopped"
    SUPERSEDED = "superseded"
    FAILED = "failed"


class NodeEvent(str, Enum):
    """What changes a node's state."""

    START = "start()"
    STOP = "stop()"
    RENEWED = "renewed"
    TO_DRAIN = "renewed, to drain"
    RAN_OUT = "ttl over"
    REMOVED = "remove()"
    REFUSED = "first call failed"
    NAME_TAKEN = "name taken"
    NAME_YIELDED = "name yielded"
    LEFT = "left or tried to"


_S, _E = NodeState, NodeEvent
_ANEW: Final = {_E.START: _S.JOINING}
_BEATEN: Final = {_E.RENEWED: _S.LIVE, _E.TO_DRAIN: _S.DRAINED}

NODE_LIFE: Final = StateTable(
    {
        _S.NEW: "before start()",
        _S.JOINING: "subscribes, chooses points, joins",
        _S.LIVE: "a heartbeat was answered, and the ring is known",
        _S.DRAINED: "off the ring by order: renews, hands keys over",
        _S.FENCED: "not renewed within the ttl, or removed by hand; keeps trying",
        _S.LEAVING: "asked to stop",
        _S.STOPPED: "has left; or expires, as Redis did not answer",
        _S.SUPERSEDED: "another process has its name",
        _S.FAILED: "start() did not succeed",
    },
    {
        _S.NEW: {**_ANEW, _E.STOP: _S.STOPPED},
        _S.JOINING: {
            **_ANEW,
            **_BEATEN,
            _E.REFUSED: _S.FAILED,
            _E.NAME_TAKEN: _S.JOINING,
            _E.NAME_YIELDED: _S.SUPERSEDED,
            _E.STOP: _S.LEAVING,
        },
        _S.LIVE: {
            **_ANEW,
            _E.TO_DRAIN: _S.DRAINED,
            _E.RAN_OUT: _S.FENCED,
            _E.REMOVED: _S.FENCED,
            _E.NAME_TAKEN: _S.JOINING,
            _E.STOP: _S.LEAVING,
        },
        _S.DRAINED: {
            **_ANEW,
            _E.RENEWED: _S.LIVE,
            _E.RAN_OUT: _S.FENCED,
            _E.REMOVED: _S.FENCED,
            _E.NAME_TAKEN: _S.JOINING,
            _E.STOP: _S.LEAVING,
        },
        _S.FENCED: {
            **_ANEW,
            **_BEATEN,
            _E.NAME_TAKEN: _S.JOINING,
            _E.STOP: _S.LEAVING,
        },
        _S.LEAVING: {**_ANEW, _E.STOP: _S.LEAVING, _E.LEFT: _S.STOPPED},
        _S.STOPPED: _ANEW,
        _S.SUPERSEDED: _ANEW,
        _S.FAILED: _ANEW,
    },
)

ENDED: Final = (_S.STOPPED, _S.SUPERSEDED, _S.FAILED)
"""The states in which there is nothing more to do."""

AT_WORK: Final = (_S.JOINING, _S.LIVE, _S.DRAINED, _S.FENCED)
"""The states of a node whose loop runs, and will go on."""

RENEWING: Final = (_S.LIVE, _S.DRAINED)
"""The states in which Redis answered a heartbeat within the ttl."""

STARTABLE: Final = (_S.NEW, _S.STOPPED, _S.FAILED)
"""The states of a node that is nowhere, and may be started."""


class SightState(str, Enum):
    """What a node knows of the ring."""

    UNKNOWN = "unknown"
    CURRENT = "current"
    BEHIND = "behind"
    DEAF = "deaf"
    UNCERTAIN = "uncertain"


class SightEvent(str, Enum):
    """What changes what a node knows of the ring."""

    READ = "ring read"
    SKIPPED = "message missing"
    UNTOLD = "change unannounced"
    HEARD = "newer message"
    CAUGHT_UP = "changes came"
    MISCOUNTED = "entries differ"


_V, _N = SightState, SightEvent
_READ: Final = {_N.READ: _V.CURRENT}

SIGHT: Final = StateTable(
    {
        _V.UNKNOWN: "no ring was read since start()",
        _V.CURRENT: "no change is missing",
        _V.BEHIND: "messages are missing, and may still come",
        _V.DEAF: "a change came without its message; subscribes anew",
        _V.UNCERTAIN: "may differ although no message is missing",
    },
    {
        _V.UNKNOWN: _READ,
        _V.CURRENT: {
            **_READ,
            _N.SKIPPED: _V.BEHIND,
            _N.UNTOLD: _V.DEAF,
            _N.MISCOUNTED: _V.UNCERTAIN,
        },
        _V.BEHIND: {
            **_READ,
            _N.SKIPPED: _V.BEHIND,
            _N.UNTOLD: _V.DEAF,
            _N.CAUGHT_UP: _V.CURRENT,
            _N.MISCOUNTED: _V.UNCERTAIN,
        },
        _V.DEAF: {
            **_READ,
            _N.HEARD: _V.BEHIND,
            _N.SKIPPED: _V.DEAF,
            _N.MISCOUNTED: _V.DEAF,
        },
        _V.UNCERTAIN: {
            **_READ,
            _N.SKIPPED: _V.UNCERTAIN,
            _N.UNTOLD: _V.DEAF,
            _N.MISCOUNTED: _V.UNCERTAIN,
        },
    },
)


class ClaimState(str, Enum):
    """How far a node is in claiming its name and its points."""

    RETURNING = "returning"
    LOOKING = "looking"
    CLAIMING = "claiming"
    CONTESTING = "contesting"
    HELD = "held"
    YIELDED = "yielded"


class ClaimEvent(str, Enum):
    """What changes a node's claim."""

    NOTHING_LEFT = "nothing left"
    CHOSEN = "points chosen"
    JOINED = "joined"
    MOVED = "ring changed"
    TAKEN = "name taken"
    YIELD = "began later"


_C, _K = ClaimState, ClaimEvent

CLAIM: Final = StateTable(
    {
        _C.RETURNING: "joins as it was, if it stopped to come back",
        _C.LOOKING: "reads the ring: which points it may have",
        _C.CLAIMING: "joins with its points",
        _C.CONTESTING: "reads which of two processes with its name began first",
        _C.HELD: "has joined",
        _C.YIELDED: "leaves its name to the other process",
    },
    {
        _C.RETURNING: {
            _K.JOINED: _C.HELD,
            _K.NOTHING_LEFT: _C.LOOKING,
            _K.TAKEN: _C.CONTESTING,
        },
        _C.LOOKING: {_K.CHOSEN: _C.CLAIMING, _K.TAKEN: _C.CONTESTING},
        _C.CLAIMING: {_K.JOINED: _C.HELD, _K.MOVED: _C.LOOKING, _K.TAKEN: _C.CONTESTING},
        _C.CONTESTING: {
            _K.CHOSEN: _C.CLAIMING,
            _K.TAKEN: _C.CONTESTING,
            _K.YIELD: _C.YIELDED,
        },
        _C.HELD: {_K.TAKEN: _C.CONTESTING},
    },
)

__doc__ = with_tables(__doc__, NODE_LIFE=NODE_LIFE, SIGHT=SIGHT, CLAIM=CLAIM)
