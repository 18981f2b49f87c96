"""Who may ask, and who may act."""

from __future__ import annotations

import hmac
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final

HEADERS: Final = {
    # No script, style or picture but this service's own, and none in a page's text: a name that
    # is HTML stays text even if escaping it were forgotten.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What every answer carries."""

_ATTEMPTS: Final = 5
"""Wrong tokens that one address may give in a row before it has to wait."""
_ALL_ATTEMPTS: Final = 50
"""The same for all addresses together."""
_SECONDS_EACH: Final = 12.0
"""Seconds after which an address may try once more."""
_ALL_SECONDS_EACH: Final = 1.2
_ADDRESSES: Final = 10_000
"""How many addresses are remembered."""


class Hosts:
    """The host names that requests may ask for.

    A page of somebody else's whose name is made to point at this machine (DNS rebinding) asks for
    its own name, which is not among them. An IP address cannot be rebound.

    Args:
        allowed: names besides ``localhost`` and this machine's; ``*`` for any.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        self._names = {"localhost", socket.gethostname().lower()}
        self._names.update(name.lower().rstrip(".") for name in allowed)

    def allows(self, host: str) -> bool:
        """Whether a request with this Host header may be answered."""
        name = _without_port(host).lower().rstrip(".")
        if "*" in self._names or name in self._names or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


class Guard:
    """Knows the token, and who has tried too often to guess it.

    Args:
        token: the secret.
        monotonic: a clock, in seconds.
    """

    def __init__(self, token: str, monotonic: Callable[[], float]) -> None:
        self._digest = _digest(token)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # By address: attempts in a row, less one for each span of waiting; and when that was so.
        self._tried: dict[str, tuple[float, float]] = {}
        self._all = (0.0, 0.0)
        # From the token, so that several services with one token know each other's visitors, and
        # so that a new token ends all visits.
        self.session_key: Final = hmac.new(token.encode(), b"hashring session", sha256).digest()

    def wait(self, address: str) -> float:
        """Seconds that this address must wait before it may try; 0 for none."""
        now = self._monotonic()
        with self._lock:
            own = _decayed(self._tried.get(address), now, _SECONDS_EACH)
            everybody = _decayed(self._all, now, _ALL_SECONDS_EACH)
        return max(
            0.0,
            (own - _ATTEMPTS + 1) * _SECONDS_EACH,
            (everybody - _ALL_ATTEMPTS + 1) * _ALL_SECONDS_EACH,
        )

    def admits(self, token: str, address: str) -> bool:
        """Whether it is the token. Takes as long for a nearly right one as for any other."""
        if hmac.compare_digest(_digest(token), self._digest):
            with self._lock:
                self._tried.pop(address, None)
            return True
        now = self._monotonic()
        with self._lock:
            if len(self._tried) >= _ADDRESSES and address not in self._tried:
                del self._tried[next(iter(self._tried))]
            tried = _decayed(self._tried.get(address), now, _SECONDS_EACH)
            self._tried[address] = (tried + 1, now)
            self._all = (_decayed(self._all, now, _ALL_SECONDS_EACH) + 1, now)
        return False


def _decayed(tried: tuple[float, float] | None, now: float, seconds_each: float) -> float:
    if tried is None:
        return 0.0
    count, at = tried
    return max(0.0, count - (now - at) / seconds_each)


def _digest(token: str) -> bytes:
    # Of one length, whatever was given.
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
