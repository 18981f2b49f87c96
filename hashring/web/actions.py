"""What can be done: take a node off, release a lock, rebalance a group. Each leaves an event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from werkzeug.exceptions import NotFound

from hashring.core.groups import kernel
from hashring.core.hashing import key_bytes
from hashring.core.replica import check_node_name
from hashring.errors import ConfigError, UnknownNodeError
from hashring.store.group.commands import commit, group_keys, read
from hashring.store.locks.commands import check_locked_key, look, take_away
from hashring.store.ring.commands import LeaveStatus, leave
from hashring.web import api_types as api
from hashring.web.formatting import shown
from hashring.web.parameters import group_of, ring_of
from hashring.web.service import Service

_LONGEST_NAME: Final = 100
_TRIES: Final = 20
_ASKED: Final[Mapping[str, type[api.Answer]]] = {
    "remove": api.RemoveAsked,
    "release": api.ReleaseAsked,
    "rebalance": api.RebalanceAsked,
}


class Actions:
    """Does what was asked, and says what was done.

    Args:
        service: what it is done to.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._do: dict[type[api.Answer], Callable[[Any, str], str]] = {
            api.RemoveAsked: self._remove,
            api.ReleaseAsked: self._release,
            api.RebalanceAsked: self._rebalance,
        }

    def asked(self, what: str) -> type[api.Answer]:
        """What must be given to do what has this name.

        Raises:
            NotFound: nothing has.
        """
        if what not in _ASKED:
            raise NotFound(f"nothing of the name {shown(what)!r} can be done")
        return _ASKED[what]

    def do(self, asked: Any, address: str) -> str:
        """Do it, and say what was done.

        Args:
            asked: one of the types of :meth:`asked`.
            address: where the request came from, for the history.

        Raises:
            HashringError: it was not done.
        """
        who = f"{checked_by(asked.by)} (hashring serve, from {address})"
        return self._do[type(asked)](asked, who)

    def _remove(self, asked: api.RemoveAsked, by: str) -> str:
        ring, node = asked.ring, asked.node
        watcher, _ = ring_of(self._service, ring)
        view = watcher.look()
        replicas = view.snapshot.replicas_of(node)
        if not replicas and node not in view.snapshot.nodes:
            raise UnknownNodeError(node, ring)
        status = self._service.store.run(
            leave(watcher.keys, node=node, replicas=replicas, reason="removed", by=by)
        )
        if status is LeaveStatus.OK or not replicas:
            return f"{shown(node)} was taken off the ring {shown(ring)}."
        return f"{shown(node)} was gone from the ring {shown(ring)} already."

    def _release(self, asked: api.ReleaseAsked, by: str) -> str:
        key, token = asked.key, int(asked.token)
        watcher, _ = ring_of(self._service, asked.ring)
        data = check_locked_key(key_bytes(key))
        released = self._service.store.run(take_away(watcher.keys, key=data, by=by, token=token))
        if released:
            return f"The lock of {shown(key)} was released."
        held = self._service.store.run(look(watcher.keys, locked=[data])).get(data)
        now = "nobody holds it now" if held is None else f"{shown(held.node)} holds it now"
        return f"The lock of {shown(key)} was not released: the token was not {token}; {now}."

    def _rebalance(self, asked: api.RebalanceAsked, by: str) -> str:
        group = asked.group
        group_of(self._service, group)
        store, keys = self._service.store, group_keys(group)
        for _ in range(_TRIES):
            reading = store.run(read(keys))
            state = reading.standing()
            if state is None:
                break
            outcome = kernel.hasten(state, reading.facts.now, by)
            if store.run(commit(keys, reading, outcome, by)) is not None:
                return f"{shown(group)} was asked to rebalance."
        return f"{shown(group)} was not asked: it changes all the time, or is gone. Try again."


def checked_by(name: str) -> str:
    """Who acts, as the history will have it.

    Raises:
        ConfigError: it is no name.
    """
    if len(name) > _LONGEST_NAME:
        raise ConfigError("by", shown(name)[:40], f"at most {_LONGEST_NAME} characters")
    try:
        return check_node_name(name.strip())
    except ConfigError:
        raise ConfigError("by", name, "give your name: the history shows who acted") from None
