"""What every store must do with locks: the scripts on each real server, and in memory.

Nothing here waits for time to pass: what must have expired is made to expire by hand.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from hashring.errors import KeyValueError, PermissionDenied, WrongKeyType
from hashring.store.interface import Subscribed
from hashring.store.locks.commands import (
    LOCKS_A_CALL,
    MAX_LOCKED_KEY_BYTES,
    AcquireAnswer,
    HeldBefore,
    HeldByOther,
    HeldOff,
    Lock,
    LockNews,
    Renewed,
    acquire,
    check_locked_key,
    look,
    parse_lock_news,
    release,
    renew,
    take_away,
)
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import BeatReply
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.ring_events import RingEvent
from tests.conftest import PATIENCE, eventually, servers
from tests.contract.places import MemoryPlace, Place, RealPlace

TTL = 1000.0
"""Seconds: nothing expires during a test unless a test makes it."""
A, B, C = "a" * 16, "b" * 16, "c" * 16
NODE = {A: "node-a", B: "node-b", C: "node-c"}
KEYS = [b"k%d" % number for number in range(20)]
ANY = 10**9


def take(
    place: Place,
    session: str,
    *keys: bytes,
    most: int = ANY,
    awaited: int | None = None,
    kept: int = 0,
    node: str | None = None,
    ttl: float = TTL,
    history: str = "",
) -> list[AcquireAnswer]:
    return place.store.run(
        acquire(
            place.keys,
            node=node or NODE[session],
            session=session,
            ttl=ttl,
            locked=keys,
            most=most,
            awaited=len(keys) if awaited is None else awaited,
            kept=kept,
            history=history,
        )
    )


def token(place: Place, session: str, key: bytes, **options: Any) -> int:
    (answer,) = take(place, session, key, **options)
    assert isinstance(answer, int)
    return answer


def let_go(place: Place, session: str, *locked: tuple[bytes, int]) -> int:
    return place.store.run(release(place.keys, session=session, locked=locked))


def again(place: Place, session: str, *locked: tuple[bytes, int], ttl: float = TTL) -> Any:
    return place.store.run(renew(place.keys, session=session, ttl=ttl, locked=locked, lasting={}))


def seen(place: Place, *keys: bytes) -> dict[bytes, Lock]:
    return place.store.run(look(place.keys, locked=keys))


def expire(place: Place, *keys: bytes) -> None:
    """Make locks expire now."""
    names = [place.keys.lock(key) for key in keys]
    if isinstance(place, MemoryPlace):
        place.server.drop(*names)
    elif isinstance(place, RealPlace):
        for name in names:
            assert place.client.pexpire(name, 0)


def lose_counter(place: Place) -> None:
    if isinstance(place, MemoryPlace):
        place.server.drop(place.keys.token)
    elif isinstance(place, RealPlace):
        place.client.delete(place.keys.token)


def history(place: Place, kind: str) -> list[RingEvent]:
    return [event for event in place.events() if event.kind == kind]


class News:
    """A subscription to a node's own channel."""

    def __init__(self, place: Place, node: str) -> None:
        self._place = place
        self._channel = place.keys.node_channel(node)
        self._subscription = place.store.subscribe(self._channel)
        while not isinstance(self._subscription.wait(PATIENCE), Subscribed):
            pass

    def told(self) -> list[LockNews | None]:
        """What was told since the last call."""
        place, mark = self._place, b"mark"
        if isinstance(place, MemoryPlace):
            place.server.publish(self._channel, mark)
        elif isinstance(place, RealPlace):
            place.client.publish(self._channel, mark)
        found = []
        while (notice := self._subscription.wait(PATIENCE)).payload != mark:  # type: ignore[union-attr]
            assert notice.channel == self._channel  # type: ignore[union-attr]
            found.append(parse_lock_news(notice.payload))  # type: ignore[union-attr]
        return found

    def close(self) -> None:
        self._subscription.close()


@pytest.fixture
def news_a(place: Place) -> Iterator[News]:
    found = News(place, NODE[A])
    yield found
    found.close()


@pytest.fixture
def news_b(place: Place) -> Iterator[News]:
    found = News(place, NODE[B])
    yield found
    found.close()


# --- taking -------------------------------------------------------------------------------------


def test_a_free_lock_is_taken_and_seen_with_holder_token_and_ttl(place: Place) -> None:
    (answer,) = take(place, A, b"k")
    assert isinstance(answer, int)
    (lock,) = seen(place, b"k", b"other").values()
    assert (lock.key, lock.token, lock.session, lock.node, lock.waiter) == (
        b"k",
        answer,
        A,
        NODE[A],
        "",
    )
    assert TTL / 2 < lock.expires_in <= TTL


def test_another_session_is_told_the_holder_and_how_long(place: Place) -> None:
    take(place, A, b"k")
    (answer,) = take(place, B, b"k")
    assert isinstance(answer, HeldByOther)
    assert answer.holder == NODE[A]
    assert TTL / 2 < answer.expires_in <= TTL
    assert seen(place, b"k")[b"k"].session == A


def test_the_same_name_in_another_session_is_another_holder(place: Place) -> None:
    take(place, A, b"k", node="n")
    assert isinstance(take(place, B, b"k", node="n")[0], HeldByOther)


def test_asking_again_for_an_own_lock_answers_its_token_and_lengthens_it(place: Place) -> None:
    first = token(place, A, b"k", ttl=TTL / 10)
    assert take(place, A, b"k") == [HeldBefore(first)]
    assert seen(place, b"k")[b"k"].expires_in > TTL / 2


def test_as_many_as_allowed_are_taken_the_first_ones(place: Place) -> None:
    answers = take(place, A, *KEYS, most=3)
    assert [answer is None for answer in answers] == [False] * 3 + [True] * (len(KEYS) - 3)
    assert set(seen(place, *KEYS)) == set(KEYS[:3])


def test_none_allowed_takes_none(place: Place) -> None:
    assert take(place, A, b"k", most=0) == [None]
    assert seen(place, b"k") == {}


def test_own_locks_count_against_what_is_allowed(place: Place) -> None:
    take(place, A, b"k1", b"k2")
    answers = take(place, A, b"k1", b"k2", b"k3", most=2)
    assert [answer is None for answer in answers] == [False, False, True]


def test_a_call_that_was_long_on_its_way_takes_no_lock_away_that_was_taken_since(
    place: Place,
    news_b: News,
) -> None:
    first = token(place, A, b"k3")
    take(place, B, b"k3")
    assert [answer is None for answer in take(place, A, b"k1", b"k2", b"k3", most=2)] == [
        False,
        False,
        True,
    ]
    assert seen(place, b"k3")[b"k3"].token == first
    assert news_b.told() == []


def test_a_key_of_any_bytes_can_be_locked(place: Place, news_b: News) -> None:
    key = bytes(range(256)) + b"\n{}: \xff"
    first = token(place, A, key)
    take(place, B, key)
    assert let_go(place, A, (key, first)) == 1
    assert news_b.told() == [LockNews(key, None)]


def test_a_full_call_is_taken_renewed_and_released(place: Place) -> None:
    keys = [b"key-%d" % number for number in range(LOCKS_A_CALL)]
    answers = take(place, A, *keys)
    held: list[Any] = list(zip(keys, answers, strict=True))
    assert again(place, A, *held).lost == ()
    assert let_go(place, A, *held) == LOCKS_A_CALL
    assert seen(place, *keys) == {}


# --- tokens -------------------------------------------------------------------------------------


def test_tokens_grow_over_keys_sessions_releases_and_expiry(place: Place) -> None:
    tokens: list[Any] = take(place, A, *KEYS)
    let_go(place, A, (KEYS[0], tokens[0]))
    tokens.append(token(place, B, KEYS[0]))
    expire(place, KEYS[1])
    tokens.append(token(place, B, KEYS[1]))
    place.store.run(take_away(place.keys, key=KEYS[2], by="somebody"))
    tokens.append(token(place, A, KEYS[2]))
    assert tokens == sorted(set(tokens))


def test_tokens_grow_when_the_counter_was_lost(place: Place) -> None:
    first = token(place, A, b"k")
    let_go(place, A, (b"k", first))
    lose_counter(place)
    assert token(place, A, b"k") > first


def test_tokens_never_fall_behind_the_time_of_the_server(place: Place) -> None:
    before = place.now()
    first = token(place, A, b"k")
    assert before - 1e-6 <= seen(place, b"k")[b"k"].taken_at <= place.now() + 1e-6
    assert first == seen(place, b"k")[b"k"].token


def test_tokens_grow_beyond_a_counter_that_is_ahead_of_time(real: RealPlace) -> None:
    ahead = 5 * 10**15
    real.client.set(real.keys.token, ahead)
    assert token(real, A, b"k") == ahead + 1


@pytest.mark.parametrize(
    "value", ["garbage", "9" * 16, str(2**53), "9" * 17, "9" * 400, "-5", "inf", "0x10", "1e300"]
)
def test_a_counter_that_was_not_written_here_is_begun_anew(real: RealPlace, value: str) -> None:
    real.client.set(real.keys.token, value)
    first = token(real, A, b"k1")
    assert abs(first / 1e6 - real.now()) < PATIENCE
    assert token(real, A, b"k2") > first
    assert int(real.client.get(real.keys.token)) > first


# --- waiting ------------------------------------------------------------------------------------


def test_who_waits_is_told_to_the_holder_and_seen(place: Place, news_a: News) -> None:
    take(place, A, b"k")
    (answer,) = take(place, B, b"k")
    assert isinstance(answer, HeldByOther)
    assert answer.awaited
    assert news_a.told() == [LockNews(b"k", NODE[B])]
    assert seen(place, b"k")[b"k"].waiter == NODE[B]
    assert TTL / 2 < seen(place, b"k")[b"k"].expires_in <= TTL


def test_waiting_again_tells_nobody(place: Place, news_a: News) -> None:
    take(place, A, b"k")
    take(place, B, b"k")
    news_a.told()
    (answer,) = take(place, B, b"k")
    assert isinstance(answer, HeldByOther)
    assert answer.awaited
    assert news_a.told() == []


def test_who_may_not_wait_does_not(place: Place, news_a: News) -> None:
    take(place, A, *KEYS[:4])
    answers = take(place, B, *KEYS[:4], awaited=2)
    assert [answer.awaited for answer in answers] == [True, True, False, False]  # type: ignore[union-attr]
    assert [news.key for news in news_a.told() if news] == KEYS[:2]
    assert [lock.waiter for lock in seen(place, *KEYS[:4]).values()] == [NODE[B]] * 2 + [""] * 2


def test_nobody_waits_for_more_than_could_be_taken(place: Place, news_a: News) -> None:
    take(place, A, *KEYS[:5])
    answers = take(place, B, *KEYS[:5], b"free", most=3)
    assert answers[5] == seen(place, b"free")[b"free"].token
    assert [answer.awaited for answer in answers[:5]] == [True, True, False, False, False]  # type: ignore[union-attr]
    assert len(news_a.told()) == 2


def test_who_waits_already_keeps_its_place_before_what_is_free(place: Place, news_a: News) -> None:
    take(place, A, *KEYS[:3])
    take(place, B, *KEYS[:2])
    news_a.told()
    *waited, new, first, second = take(
        place, B, *KEYS[:3], b"free 1", b"free 2", most=3, awaited=3, kept=2
    )
    assert [answer.awaited for answer in waited] == [True, True]  # type: ignore[union-attr]
    assert not new.awaited  # type: ignore[union-attr]
    assert isinstance(first, int)
    assert second is None
    assert news_a.told() == []


def test_who_kept_a_place_for_a_lock_that_is_free_takes_it(place: Place, news_a: News) -> None:
    take(place, A, *KEYS[:2])
    take(place, B, *KEYS[:2])
    expire(place, KEYS[0])
    first, second, third = take(place, B, *KEYS[:2], b"free", most=2, awaited=2, kept=2)
    assert isinstance(first, int)
    assert second.awaited  # type: ignore[union-attr]
    assert third is None


def test_a_waiter_is_told_when_the_lock_is_freed_and_only_then(place: Place, news_b: News) -> None:
    first = token(place, A, b"k")
    take(place, B, b"k")
    again(place, A, (b"k", first))
    assert news_b.told() == []
    let_go(place, A, (b"k", first))
    assert news_b.told() == [LockNews(b"k", None)]


def test_a_waiter_is_told_when_another_waits_in_its_place(place: Place, news_b: News) -> None:
    take(place, A, b"k")
    take(place, B, b"k")
    take(place, B, b"k")
    assert news_b.told() == []
    take(place, C, b"k")
    assert news_b.told() == [LockNews(b"k", replaced=True)]


def test_a_waiter_is_told_when_the_lock_is_to_end_early(place: Place, news_b: News) -> None:
    # Nobody tells it when the lock expires; it knows the time from when it asked.
    first = token(place, A, b"k")
    take(place, B, b"k")
    locked, lasting = [(b"k", first)], {0: TTL / 10}
    place.store.run(renew(place.keys, session=A, ttl=TTL, locked=locked, lasting=lasting))
    assert news_b.told() == [LockNews(b"k", None)]
    (answer,) = take(place, B, b"k")
    assert isinstance(answer, HeldByOther)
    assert answer.awaited
    assert answer.expires_in <= TTL / 10


def test_a_lock_remembers_the_last_who_waits(place: Place, news_b: News) -> None:
    first = token(place, A, b"k")
    take(place, B, b"k")
    take(place, C, b"k")
    assert again(place, A, (b"k", first)).wanted == {0: NODE[C]}
    let_go(place, A, (b"k", first))
    assert news_b.told() == [LockNews(b"k", replaced=True)]


def test_nothing_of_a_waiter_is_left_on_a_lock_taken_anew(place: Place) -> None:
    first = token(place, A, b"k")
    take(place, B, b"k")
    let_go(place, A, (b"k", first))
    second = token(place, C, b"k")
    assert again(place, C, (b"k", second)).wanted == {}


# --- renewing -----------------------------------------------------------------------------------


def test_renewing_lengthens_each_lock_as_asked_or_shortens_it(place: Place) -> None:
    lasting = {0: TTL / 10, 2: TTL / 20}
    locked = [(key, token(place, A, key, ttl=TTL / 4)) for key in (b"k1", b"k2", b"k3")]
    place.store.run(renew(place.keys, session=A, ttl=TTL, locked=locked, lasting=lasting))
    found = seen(place, b"k1", b"k2", b"k3")
    assert found[b"k1"].expires_in <= TTL / 10
    assert found[b"k2"].expires_in > TTL / 2
    assert found[b"k3"].expires_in <= TTL / 20


def test_a_lock_that_has_expired_is_lost_and_not_made_anew(place: Place) -> None:
    first = token(place, A, b"k")
    expire(place, b"k")
    assert again(place, A, (b"k", first)).lost == (0,)
    assert seen(place, b"k") == {}


def test_a_lock_that_another_has_taken_is_lost_and_left_alone(place: Place) -> None:
    first = token(place, A, b"k")
    expire(place, b"k")
    second = token(place, B, b"k", ttl=TTL / 10)
    assert again(place, A, (b"k", first)).lost == (0,)
    found = seen(place, b"k")[b"k"]
    assert (found.session, found.token) == (B, second)
    assert found.expires_in <= TTL / 10


def test_a_renewal_under_an_older_token_is_lost(place: Place) -> None:
    first = token(place, A, b"k")
    let_go(place, A, (b"k", first))
    token(place, A, b"k", ttl=TTL / 10)
    assert again(place, A, (b"k", first)).lost == (0,)
    assert seen(place, b"k")[b"k"].expires_in <= TTL / 10


def test_a_renewal_that_puts_nothing_back_writes_no_counter(real: RealPlace) -> None:
    # That there is one says that locks were taken in these data.
    first = token(real, A, b"k")
    lose_counter(real)
    assert again(real, A, (b"k", first)).lost == ()
    assert not real.client.exists(real.keys.token)


def test_the_lost_and_the_wanted_are_told_by_their_numbers(place: Place) -> None:
    held = [(key, token(place, A, key)) for key in KEYS[:5]]
    expire(place, KEYS[1], KEYS[3])
    take(place, B, KEYS[0], KEYS[4])
    reply = again(place, A, *held)
    assert reply.lost == (1, 3)
    assert reply.wanted == {0: NODE[B], 4: NODE[B]}


# --- letting go ---------------------------------------------------------------------------------


def test_a_release_by_another_session_or_under_another_token_does_nothing(place: Place) -> None:
    first = token(place, A, b"k")
    assert let_go(place, B, (b"k", first)) == 0
    assert let_go(place, A, (b"k", first + 1)) == 0
    assert seen(place, b"k")[b"k"].token == first


def test_a_release_that_was_long_on_its_way_leaves_the_lock_taken_since(place: Place) -> None:
    first = token(place, A, b"k")
    let_go(place, A, (b"k", first))
    second = token(place, A, b"k")
    assert let_go(place, A, (b"k", first)) == 0
    assert seen(place, b"k")[b"k"].token == second


def test_a_lock_is_taken_away_whoever_holds_it_and_the_history_tells(
    place: Place,
    news_b: News,
) -> None:
    first = token(place, A, b"k\xff")
    take(place, B, b"k\xff")
    assert place.store.run(take_away(place.keys, key=b"k\xff", by="hashring release on here"))
    assert seen(place, b"k\xff") == {}
    assert again(place, A, (b"k\xff", first)).lost == (0,)
    assert news_b.told() == [LockNews(b"k\xff", None)]
    (event,) = history(place, "release")
    assert (event.by, event.keys) == ("hashring release on here", "k�")


def test_what_was_not_seen_is_not_taken_away(place: Place) -> None:
    first = token(place, A, b"k")
    assert not place.store.run(take_away(place.keys, key=b"k", by="me", token=first - 1))
    assert not place.store.run(take_away(place.keys, key=b"free", by="me"))
    assert seen(place, b"k")[b"k"].token == first
    assert history(place, "release") == []
    assert place.store.run(take_away(place.keys, key=b"k", by="me", token=first))
    assert seen(place, b"k") == {}


# --- what is left in Redis ----------------------------------------------------------------------


def test_every_lock_expires_by_itself(real: RealPlace) -> None:
    held = [(key, token(real, A, key)) for key in KEYS]
    take(real, B, *KEYS)
    again(real, A, *held[:10])
    lasting = [name for name in real.client.scan_iter("*") if real.client.pttl(name) < 0]
    assert lasting == [real.keys.token]
    assert len(list(real.client.scan_iter("*"))) == len(KEYS) + 1


def test_nothing_is_left_of_locks_that_were_let_go(real: RealPlace) -> None:
    held = [(key, token(real, A, key)) for key in KEYS]
    take(real, B, *KEYS)
    let_go(real, A, *held)
    assert real.client.keys("*") == [real.keys.token]


@pytest.mark.parametrize("kind", ["text", "spaces", "empty", "hash"])
def test_what_was_not_written_here_is_nobodys_and_does_not_stop_the_others(
    real: RealPlace,
    kind: str,
) -> None:
    name = real.keys.lock(b"odd")
    value = {"text": b"somebody else's", "spaces": b"1  x", "empty": b""}.get(kind)
    if value is None:
        real.client.hset(name, "a", "b")
    else:
        real.client.set(name, value)
    answers = take(real, A, b"k1", b"odd", b"k2")
    assert [type(answer) for answer in answers] == [int, HeldByOther, int]
    other = answers[1]
    assert isinstance(other, HeldByOther)
    assert not other.awaited
    # It never expires, so it is not asked about again and again.
    assert other.expires_in > TTL / 2
    assert let_go(real, A, (b"odd", 0)) == 0
    assert again(real, A, (b"odd", 0)).lost == (0,)
    assert seen(real, b"odd")[b"odd"].session == ""
    assert value is None or real.client.get(name) == value
    assert real.store.run(take_away(real.keys, key=b"odd", by="me"))
    assert real.client.exists(name) == 0


def test_a_counter_of_another_type_refuses_before_anything_is_taken(real: RealPlace) -> None:
    real.client.hset(real.keys.token, "a", "b")
    with pytest.raises(WrongKeyType):
        take(real, A, *KEYS)
    assert seen(real, *KEYS) == {}


def test_who_may_not_touch_locks_is_refused(real: RealPlace) -> None:
    real.client.execute_command(
        "ACL", "SETUSER", "poor", "reset", "on", ">x", "+@all", "~accounts", "&*"
    )
    path = real.client.connection_pool.connection_kwargs["path"]
    with Redis(unix_socket_path=path, username="poor", password="x") as client:
        store = RedisStore(client, 30.0)
        with pytest.raises(PermissionDenied):
            store.run(
                acquire(real.keys, node="n", session=A, ttl=1, locked=[b"k"], most=1, awaited=1)
            )
        store.close()
    real.client.execute_command("ACL", "DELUSER", "poor")


# --- keys that no node serves -------------------------------------------------------------------


def test_the_history_tells_when_keys_come_to_be_unserved_and_when_they_are_served(
    place: Place,
) -> None:
    place.join("n", A, 10)
    for unserved in (0, 5, 7, 0, 0):
        place.beat("n", A, 10, told={"unserved": unserved})
    found = [(event.by, event.keys) for event in history(place, "unserved")]
    assert found == [("n", "5"), ("n", "0")]


@pytest.mark.parametrize("told", [{"unserved": None}, {"unserved": []}, {"unserved": "x"}])
def test_what_a_node_tells_of_unserved_keys_may_be_anything(
    place: Place,
    told: dict[str, Any],
) -> None:
    place.join("n", A, 10)
    place.beat("n", A, 10, told=told)
    assert history(place, "unserved") == []


# --- Redis comes back -----------------------------------------------------------------------------


class Server:
    """A server of its own, that can crash and come back."""

    def __init__(self, directory: Path, *options: str) -> None:
        directory.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._command = [
            *(str(next(iter(servers().values()))), "--port", str(self.port)),
            *("--dir", str(directory), "--save", "", "--logfile", str(directory / "log"), *options),
        ]
        self.client = Redis(port=self.port)
        self.place = RealPlace(ring_keys("accounts"), self.client, RedisStore(self.client, 30.0))
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        eventually(self._answers, "the server answers")

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except RedisError:
            return False

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.place.store.close()
        self.client.close()
        self.kill()


def test_locks_and_tokens_outlive_a_crash_of_a_redis_that_writes_a_log(tmp_path: Path) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with Server(tmp_path / "redis", *options) as server:
        first = token(server.place, A, b"k")
        server.kill()
        server.start()
        found = seen(server.place, b"k")[b"k"]
        assert (found.token, found.session) == (first, A)
        assert found.expires_in <= TTL
        assert isinstance(take(server.place, B, b"k")[0], HeldByOther)
        assert let_go(server.place, A, (b"k", first)) == 1
        assert token(server.place, B, b"k") > first


def test_tokens_grow_over_a_crash_of_a_redis_that_keeps_nothing(tmp_path: Path) -> None:
    with Server(tmp_path / "redis") as server:
        first = token(server.place, A, b"k")
        server.kill()
        server.start()
        assert seen(server.place, b"k") == {}
        assert again(server.place, A, (b"k", first)).lost == (0,)
        assert token(server.place, B, b"k") > first


def test_tokens_grow_over_a_failover_that_loses_writes(tmp_path: Path) -> None:
    with Server(tmp_path / "primary", "--repl-diskless-sync-delay", "0") as primary:
        early = token(primary.place, A, b"early")
        copy_of = ("--replicaof", "127.0.0.1", str(primary.port))
        with Server(tmp_path / "replica", *copy_of) as replica:
            eventually(lambda: b"early" in seen(replica.place, b"early"), "the replica follows")
            replica.client.execute_command("REPLICAOF", "NO", "ONE")
            # Written to the old primary, and never heard of by the new one.
            lost = token(primary.place, A, b"k")
            assert seen(replica.place, b"early", b"k")[b"early"].token == early
            assert b"k" not in seen(replica.place, b"k")
            assert token(replica.place, B, b"k") > lost


def test_no_lock_ends_before_its_holder_thinks_so() -> None:
    keys = ring_keys("accounts")
    renewal = renew(keys, session=A, ttl=1.0001, locked=[(b"k", 7)], lasting={0: 0.0001})
    assert renewal.arguments[-4:] == (1001, "7", 0, 1)
    taking = acquire(keys, node="n", session=A, ttl=2.3, locked=[b"k"], most=1, awaited=1)
    assert 2300 in taking.arguments


# --- what travels, and what cannot be locked ------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [b"", b"freed", b"freed\n", b"wanted\nk", b"wanted:\nk", b"wanted:\xff\nk", b"gone\nk", b"\nk"],
)
def test_other_messages_on_a_nodes_channel_are_no_news(payload: bytes) -> None:
    assert parse_lock_news(payload) is None


def test_news_may_name_any_key_and_any_node() -> None:
    assert parse_lock_news(b"freed\na\nb:c") == LockNews(b"a\nb:c", None)
    assert parse_lock_news(b"replaced\na\nb:c") == LockNews(b"a\nb:c", replaced=True)
    assert parse_lock_news("wanted:h:1 é\nk\n".encode()) == LockNews(b"k\n", "h:1 é")


def test_a_key_that_is_too_long_to_lock_says_so() -> None:
    assert check_locked_key(b"x" * MAX_LOCKED_KEY_BYTES)
    with pytest.raises(KeyValueError) as caught:
        check_locked_key(b"x" * 1_000_000)
    assert str(caught.value) == (
        "key b'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' begins a key of 1000000 bytes; a key that is "
        "locked has at most 4096: lock a digest of it instead"
    )
    assert len(caught.value.key) == 32


def test_a_node_without_room_waits_for_nothing_more(place: Place) -> None:
    token(place, A, KEYS[0])
    [answer] = take(place, B, KEYS[0], most=0, awaited=1, kept=1)
    assert isinstance(answer, HeldByOther)
    assert not answer.awaited
    assert seen(place, KEYS[0])[KEYS[0]].waiter == ""


# --- when Redis has lost the locks ----------------------------------------------------------------


def joined(place: Place, session: str, history: str = "") -> BeatReply:
    """The answer to a heartbeat of a node that knows this history."""
    return place.join(NODE[session], session, 10, history=history, lock_ttl=TTL, locking=True)


def put_back(
    place: Place, session: str, history: str, *locked: tuple[bytes, int], numbers: Sequence[int]
) -> Renewed:
    return place.store.run(
        renew(
            place.keys,
            session=session,
            ttl=TTL,
            locked=locked,
            lasting={},
            node=NODE[session],
            history=history,
            put_back=numbers,
        )
    )


def lost(place: Place) -> tuple[str, list[int], str]:
    """A node took two locks, and then Redis lost everything, which the node has learnt.

    The history that it knew, its tokens, and the history that is now.
    """
    before = joined(place, A).history
    tokens = [token(place, A, key, history=before) for key in KEYS[:2]]
    place.wipe()
    return before, tokens, joined(place, A, before).history


def test_no_lock_is_taken_in_a_history_that_the_node_does_not_know(place: Place) -> None:
    before, _, now = lost(place)
    assert "" not in (before, now)
    assert before != now
    assert take(place, A, KEYS[2], history=before) == [HeldOff(None)]
    place.wipe()
    assert take(place, A, KEYS[2], history=now) == [HeldOff(None)]
    assert seen(place, *KEYS) == {}


def test_a_ring_that_nobody_knew_before_is_open_at_once(place: Place) -> None:
    reply = joined(place, A)
    assert reply.held_off == 0.0
    assert isinstance(token(place, A, b"k", history=reply.history), int)
    assert joined(place, B, reply.history).held_off == 0.0


def test_after_a_loss_nobody_takes_a_lock_for_as_long_as_one_lasts(place: Place) -> None:
    _, _, now = lost(place)
    for session in (A, B):
        (answer,) = take(place, session, KEYS[2], history=now)
        assert isinstance(answer, HeldOff)
        assert answer.seconds is not None
        assert 0 < answer.seconds <= TTL
    assert 0 < joined(place, B).held_off <= TTL


def test_a_second_node_that_knew_the_ring_does_not_make_the_wait_longer(place: Place) -> None:
    before, _, now = lost(place)
    first = joined(place, A, now)
    second = joined(place, B, before)
    assert second.held_off <= first.held_off
    assert second.history == now


def test_a_heartbeat_that_states_no_time_holds_nobody_off(place: Place) -> None:
    before = joined(place, A).history
    place.wipe()
    assert place.join("other", C, 30, history=before, lock_ttl=0.0).held_off == 0.0


def test_a_holder_puts_back_what_redis_lost_under_the_same_token(place: Place) -> None:
    _, tokens, now = lost(place)
    held = list(zip(KEYS, tokens, strict=False))
    assert put_back(place, A, now, *held, numbers=[0, 1]) == Renewed((), {})
    found = seen(place, *KEYS[:2])
    assert [(found[key].token, found[key].session) for key in KEYS[:2]] == [
        (token, A) for token in tokens
    ]
    assert found[KEYS[0]].node == NODE[A]
    assert isinstance(take(place, B, KEYS[0], history=now)[0], HeldByOther)


def test_only_what_is_still_held_is_put_back(place: Place) -> None:
    _, tokens, now = lost(place)
    held = list(zip(KEYS, tokens, strict=False))
    assert put_back(place, A, now, *held, numbers=[1]) == Renewed((0,), {})
    assert seen(place, *KEYS[:2]).keys() == {KEYS[1]}


def test_a_renewal_that_knows_an_earlier_history_changes_nothing(place: Place) -> None:
    before, tokens, _ = lost(place)
    held = list(zip(KEYS, tokens, strict=False))
    assert put_back(place, A, before, *held, numbers=[0, 1]) == Renewed((), {}, (0, 1))
    assert seen(place, *KEYS) == {}


def test_nothing_is_put_back_when_locks_may_be_taken_again(place: Place) -> None:
    history = joined(place, A).history
    first = token(place, A, b"k", history=history)
    expire(place, b"k")
    assert put_back(place, A, history, (b"k", first), numbers=[0]) == Renewed((0,), {})
    assert seen(place, b"k") == {}


def test_what_stands_there_by_then_is_left_alone(place: Place) -> None:
    _, (older, later), now = lost(place)
    assert put_back(place, A, now, (b"k", older), numbers=[0]) == Renewed((), {})
    assert put_back(place, B, now, (b"k", later), numbers=[0]) == Renewed((0,), {})
    assert seen(place, b"k")[b"k"].token == older


def test_tokens_go_on_growing_from_those_that_were_put_back(place: Place) -> None:
    _, _, now = lost(place)
    ahead = int(place.now() * 1e6) + 10**12
    put_back(place, A, now, (b"k", ahead), numbers=[0])
    place.set_epoch(b"7 ab %b 0" % now.encode())
    assert token(place, A, b"k2", history=now) == ahead + 1


# --- when Redis restarted, or another server took over --------------------------------------------


def moved(place: Place) -> tuple[str, int]:
    """A node took a lock, and another server serves the data now.

    The history that the node knows, and its token.
    """
    history = joined(place, A).history
    found = token(place, A, KEYS[0], history=history)
    place.another_server()
    return history, found


def test_on_another_server_nobody_takes_a_lock_before_a_heartbeat(place: Place) -> None:
    history, found = moved(place)
    held, free = take(place, B, *KEYS[:2], history=history)
    assert isinstance(held, HeldByOther)
    assert free == HeldOff(None)
    assert {key: lock.token for key, lock in seen(place, *KEYS[:2]).items()} == {KEYS[0]: found}


def test_the_first_heartbeat_on_another_server_begins_another_history(place: Place) -> None:
    history, _ = moved(place)
    before = place.look().stamp
    first = joined(place, B)
    assert int(first.history) > int(history)
    assert 0 < first.held_off <= TTL
    assert isinstance(take(place, B, KEYS[1], history=first.history)[0], HeldOff)
    after = place.look().stamp
    assert after.epoch == before.epoch + 1  # It joined, and that is all.
    again = joined(place, A, history)
    assert (again.history, again.held_off <= first.held_off) == (first.history, True)


def test_holders_keep_their_locks_on_another_server(place: Place) -> None:
    history, found = moved(place)
    older = (KEYS[1], found + 1)  # of which this server knows nothing
    assert put_back(place, A, history, (KEYS[0], found), older, numbers=[1]) == Renewed(
        (), {}, (1,)
    )
    now = joined(place, A, history).history
    assert put_back(place, A, now, (KEYS[0], found), older, numbers=[1]) == Renewed((), {})
    assert [seen(place, *KEYS[:2])[key].token for key in KEYS[:2]] == [found, found + 1]


def test_a_look_tells_whether_the_ring_has_the_history_that_it_names(place: Place) -> None:
    def same(history: str | None) -> bool:
        return place.store.run(look(place.keys, locked=KEYS[:1], history=history))[
            KEYS[0]
        ].in_history

    before = joined(place, A).history
    token(place, A, KEYS[0], history=before)
    assert [same(known) for known in (before, "5", "", None)] == [True, False, False, False]
    place.another_server()
    assert not same(before)
    now = joined(place, A, before).history
    assert [same(known) for known in (before, now)] == [False, True]
    place.set_epoch(b"")
    assert not same(now)


def test_where_nobody_noted_the_server_locks_may_be_missing(place: Place) -> None:
    history, _ = moved(place)
    place.forget_server()
    assert take(place, B, KEYS[1], history=history) == [HeldOff(None)]
    assert 0 < joined(place, B, history).held_off <= TTL


@pytest.mark.parametrize("value", [b"", b"junk"], ids=["deleted", "junk"])
@pytest.mark.parametrize("swept", [False, True], ids=["nothing", "with a sweep"])
def test_where_the_ring_has_lost_its_history_a_newcomer_takes_no_lock(
    place: Place, value: bytes, swept: bool
) -> None:
    before, _, _ = lost(place)
    place.join("other", C, 30, history=before)
    if swept:
        place.age("other")
    place.set_epoch(value)
    first = joined(place, B)
    assert 0 < first.held_off <= TTL
    assert isinstance(take(place, B, KEYS[0], history=first.history)[0], HeldOff)
    assert joined(place, B, first.history).history == first.history


def test_a_ring_that_never_had_locks_is_open_at_once_and_has_another_history(place: Place) -> None:
    plain = place.join("other", C, 30).history
    assert plain
    first = joined(place, A)
    assert (first.held_off, first.history != plain) == (0.0, True)
    assert isinstance(token(place, A, KEYS[0], history=first.history), int)


def test_a_node_without_locks_does_not_ask_which_server_it_is(place: Place) -> None:
    history = place.join("other", C, 30).history
    place.another_server()
    place.forget_server()
    later = place.beat("other", C, 30, history=history, lock_ttl=TTL)
    assert (later.history, later.held_off) == (history, 0.0)


def test_who_knew_a_younger_history_than_a_failover_brought_back_waits_from_now_on(
    place: Place,
) -> None:
    younger = joined(place, A).history
    began = int(place.now() * 1e6) - 3600 * 10**6
    place.set_epoch(b"7 ab %d 0" % began)
    assert TTL - 10 < joined(place, B, younger).held_off <= TTL


# --- when the clock of Redis' machine was set back ------------------------------------------------


def set_back(place: Place) -> str:
    """The history of a ring that lost its locks an hour from now, before the clock was set back."""
    joined(place, A)
    began = int(place.now() * 1e6) + 3600 * 10**6
    place.set_epoch(b"7 ab %d %d" % (began, began + int(TTL) * 10**6))
    return str(began)


def test_a_loss_of_before_the_clock_was_set_back_holds_off_no_longer_than_locks_last(
    place: Place,
) -> None:
    history = set_back(place)
    (answer,) = take(place, A, KEYS[0], history=history)
    assert isinstance(answer, HeldOff)
    assert answer.seconds is not None
    assert 0 < answer.seconds <= TTL
    first = joined(place, A, history)
    assert first.history == history
    assert 0 < first.held_off <= TTL
    # It ends, though it began later than now.
    assert joined(place, A, history).held_off < first.held_off


def test_who_returns_after_the_clock_was_set_back_waits_from_now_on(place: Place) -> None:
    history = set_back(place)
    place.set_epoch(b"7 ab %b 0" % history.encode())
    first = joined(place, B, "5")
    assert TTL - 10 < first.held_off <= TTL
    assert joined(place, B, history).held_off <= first.held_off
