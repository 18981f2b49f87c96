"""Who is signed in.

Sessions live in this process. A visitor's cookie is a random name and holds nothing that follows
from the token, so it does not help to guess the token. Signing out ends the session here; a copy
of the cookie is worth nothing then. A session ends eight hours after it began, used or not.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

SESSION_SECONDS: Final = 8 * 3600.0
"""Seconds from signing in to the end of a session."""

_SESSIONS: Final = 1_000
"""How many sessions there are at once; of more, the newest."""
_ANSWERS: Final = 100
"""How many answers of a session are remembered."""
_USER: Final = secrets.token_urlsafe(32)
"""Before a user's name: no cookie can be the same."""


@dataclass(frozen=True)
class PageNotice:
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
        acting: held while one of its forms is answered.
        answers: where the answer to each form led, by the id that the form carries.
    """

    by: str
    form_token: str
    ends: float
    notice: PageNotice | None = None
    acting: threading.Lock = field(default_factory=threading.Lock)
    answers: dict[str, str] = field(default_factory=dict)

    def take_notice(self) -> PageNotice | None:
        """What was done last; once."""
        notice, self.notice = self.notice, None
        return notice

    def answered(self, form: str, led: str) -> None:
        """Remember where the answer to a form led, so that the form acts once."""
        self.answers[form] = led
        if len(self.answers) > _ANSWERS:
            del self.answers[next(iter(self.answers))]


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
