"""The token: whether a visitor has it, and who has to wait after wrong ones.

Waiting is by address (of IPv6, by network of 64 bits): five wrong tokens in a row, then one
attempt every twelve seconds. There is no limit for all addresses together, because an attacker
with many addresses could use it to keep the operator out. Against guesses from many addresses a
long token is the remedy: at 100,000 addresses and five guesses a minute from each, 16 random
letters and digits last for 10 ** 16 years.
"""

from __future__ import annotations

import hmac
import ipaddress
import threading
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from typing import Final

_ATTEMPTS: Final = 5
"""Wrong tokens that one address may give in a row before it has to wait."""
_SECONDS_EACH: Final = 12.0
"""Seconds after which an address may try once more."""
_ADDRESSES: Final = 10_000
"""How many addresses are remembered; of more, those that tried last."""


class Guard:
    """Knows the token, and who has tried too often to guess it. Thread-safe.

    Args:
        token: the secret.
        monotonic: a clock, in seconds.
    """

    def __init__(self, token: str, monotonic: Callable[[], float]) -> None:
        self._digest = _digest(token)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # By address: attempts in a row, less one per span of waiting; and when that was so.
        self._tried: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds that this address must wait before it may try; 0 for none."""
        now = self._monotonic()
        with self._lock:
            own = _decayed(self._tried.get(network_of(address)), now)
        return max(0.0, (own - _ATTEMPTS + 1) * _SECONDS_EACH)

    def admits(self, token: str, address: str) -> bool:
        """Whether it is the token. Takes as long for a nearly right one as for any other."""
        network = network_of(address)
        if hmac.compare_digest(_digest(token), self._digest):
            with self._lock:
                self._tried.pop(network, None)
            return True
        now = self._monotonic()
        with self._lock:
            tried = _decayed(self._tried.pop(network, None), now)
            self._tried[network] = (tried + 1, now)
            if len(self._tried) > _ADDRESSES:
                self._tried.popitem(last=False)
        return False


def network_of(address: str) -> str:
    """What stands for an address: of IPv6 its network of 64 bits, which one machine usually has."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return address


def _decayed(tried: tuple[float, float] | None, now: float) -> float:
    if tried is None:
        return 0.0
    count, at = tried
    return max(0.0, count - (now - at) / _SECONDS_EACH)


def _digest(token: str) -> bytes:
    # Of one length, whatever was given.
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
