"""Who may act: the token, who is signed in, and who has to wait after wrong tokens.

**Sessions** live in this process. A visitor's cookie is a random name and holds nothing that
follows from the token, so it does not help to guess the token. Signing out ends the session here;
a copy of the cookie is worth nothing then. A session ends eight hours after it began, used or not.

**Waiting** is by address (of IPv6, by network of 64 bits): five wrong tokens in a row, then one
attempt every twelve seconds. There is no limit for all addresses together, because an attacker
with many addresses could use it to keep the operator out. Against guesses from many addresses a
long token is the remedy: at 100,000 addresses and five guesses a minute from each, 16 random
letters and digits last for 10 ** 16 years.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

SHORTEST_TOKEN: Final = 16
"""Characters that a token has at least."""
SESSION_SECONDS: Final = 8 * 3600.0
"""Seconds from signing in to the end of a session."""

_ATTEMPTS: Final = 5
"""Wrong tokens that one address may give in a row before it has to wait."""
_SECONDS_EACH: Final = 12.0
"""Seconds after which an address may try once more."""
_ADDRESSES: Final = 10_000
"""How many addresses are remembered; of more, those that tried last."""
_SESSIONS: Final = 1_000
"""How many sessions there are at once; of more, the newest."""


_USER: Final = secrets.token_urlsafe(32)
"""Before a user's name: no cookie can be the same."""


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
            own = _decayed(self._tried.get(_network(address)), now)
        return max(0.0, (own - _ATTEMPTS + 1) * _SECONDS_EACH)

    def admits(self, token: str, address: str) -> bool:
        """Whether it is the token. Takes as long for a nearly right one as for any other."""
        network = _network(address)
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


@dataclass(frozen=True)
class Notice:
    """What was done last, for the next page to show.

    Attributes:
        text: in words.
        link: where the history has it; empty for nowhere.
    """

    text: str
    link: str


@dataclass
class Session:
    """A person who has signed in.

    Attributes:
        by: the name given.
        form_token: what each of the session's forms carries, against forgery.
        ends: when it ends, by the monotonic clock.
        notice: what was done last, until a page has shown it.
    """

    by: str
    form_token: str
    ends: float
    notice: Notice | None = None

    def take_notice(self) -> Notice | None:
        """What was done last; once."""
        notice, self.notice = self.notice, None
        return notice


class Sessions:
    """Who is signed in. Thread-safe.

    Args:
        monotonic: a clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, by: str) -> str:
        """Sign a person in; the answer is what the cookie holds."""
        cookie = secrets.token_urlsafe(32)
        self._begin(cookie, by)
        return cookie

    def _begin(self, name: str, by: str) -> Session:
        session = Session(by, secrets.token_urlsafe(24), self._monotonic() + SESSION_SECONDS)
        with self._lock:
            self._sessions[name] = session
            if len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie; ``None`` when there is none, or it has ended."""
        with self._lock:
            session = self._sessions.get(cookie)
            if session is not None and self._monotonic() >= session.ends:
                del self._sessions[cookie]
                session = None
        return session

    def of_user(self, user: str) -> Session:
        """The session of a user whom a proxy has signed in; begun at the first request.

        It ends as any other does, and another follows at once.
        """
        session = self.find(f"{_USER} {user}")
        if session is None:
            session = self._begin(f"{_USER} {user}", user)
        return session

    def end(self, cookie: str) -> None:
        """Sign out."""
        with self._lock:
            self._sessions.pop(cookie, None)


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        # One machine usually has 2 ** 64 addresses.
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
