"""The names of a group's keys in Redis."""

from __future__ import annotations

from dataclasses import dataclass

from hashring.store.ring_and_group_names import tagged


@dataclass(frozen=True)
class GroupKeys:
    """The key names of one group, as bytes; all in one hash slot.

    Attributes:
        state, members, leases, views, control: see ``_head.lua``.
    """

    state: bytes
    members: bytes
    leases: bytes
    views: bytes
    control: bytes

    @property
    def channel(self) -> bytes:
        """The channel of those who watch the group: the tags of decisions."""
        return self.control

    def member_channel(self, member: str) -> bytes:
        """The channel of messages to one member: the tags of decisions, and ``STEP``."""
        return self.control.removesuffix(b"control") + b"to:" + member.encode()

    def script_keys(self) -> tuple[bytes, ...]:
        """The KEYS of every script, in their order."""
        return (self.state, self.members, self.leases, self.views, self.control)


def group_keys(name: str | bytes) -> GroupKeys:
    """The keys of the group of that name. A ring may have the same name.

    Raises:
        ConfigError: the name cannot be one: see :func:`hashring.store.ring_and_group_names.tagged`.
    """
    base = tagged("group", name) + b":group:"
    return GroupKeys(
        *(base + part for part in (b"state", b"members", b"leases", b"views", b"control"))
    )
