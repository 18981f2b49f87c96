"""A follower of a page gets what it missed: what changed, or everything. Streams are shared out."""

from __future__ import annotations

import json
import threading
from functools import partial
from http.client import HTTPConnection, HTTPResponse
from itertools import islice
from typing import Any

import pytest
from flask import Flask, Response
from redis import Redis

from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import Scoring
from hashring.store.ring.ring_events import RingEvent
from hashring.web import server_sent_events
from hashring.web.ring_watcher import RingWatcher
from hashring.web.server_sent_events import Feed, Row, Streams, changes_after, live_changes
from hashring.web.waitress_server import Server
from tests.conftest import PATIENCE, eventually
from tests.web.conftest import Visit, Visitor, put

pytestmark = pytest.mark.one_server


def sent(feed: Feed, since: str, count: int = 1) -> list[Any]:
    """The first messages to a reader that has this version."""
    chunks = islice(feed.follow(since, 5.0), 1, count + 1)
    return [json.loads(chunk.decode().partition("data: ")[2]) for chunk in chunks]


def publish(feed: Feed, number: int, **rows: int) -> str:
    """The version from before."""
    version = feed.version
    shown = {
        name: Row(value, partial("<tr>{} {}".format, name, value)) for name, value in rows.items()
    }
    feed.publish(float(number), {"a": "same", "b": f"text {number}"}, shown)
    return version


def test_a_reader_gets_what_changed_and_no_more() -> None:
    feed = Feed()
    publish(feed, 1, x=1, y=1, z=1)
    version = publish(feed, 2, x=1, y=2, w=1)
    [message] = sent(feed, version)
    assert message == {
        "at": 2.0,
        "parts": {"b": "text 2"},
        "rows": {"y": "<tr>y 2", "w": "<tr>w 1"},
        "gone": ["z"],
    }


def test_a_row_that_shows_the_same_is_not_made_again() -> None:
    feed, made = Feed(), []
    rows = {name: Row(name, partial(made.append, name)) for name in "xy"}
    feed.publish(1.0, {}, rows)
    again = {name: Row(name, partial(made.append, f"{name} again")) for name in "xyz"}
    feed.publish(2.0, {}, again)
    assert made == ["x", "y", "z again"]


def test_what_is_the_same_is_no_version() -> None:
    feed = Feed()
    publish(feed, 1, x=1)
    version = publish(feed, 1, x=1)
    assert feed.version == version


def test_a_reader_that_was_away_for_long_gets_everything() -> None:
    feed = Feed()
    first = publish(feed, 0)
    for number in range(1, 100):
        publish(feed, number, x=number)
    for since in (first, "", "other.99", "99", feed.version + "9"):
        [message] = sent(feed, since)
        assert message == {
            "at": 5.0,
            "parts": {"a": "same", "b": "text 99"},
            "rows": {"x": "<tr>x 99"},
            "whole": True,
        }


def test_of_large_messages_few_are_kept() -> None:
    feed, versions = Feed(), []
    for number in range(10):
        versions.append(feed.version)
        feed.publish(5.0, {"a": f"{number}" * (1 << 20)}, {})
    wholes = ["whole" in sent(feed, version)[0] for version in versions]
    assert wholes == [True] * 7 + [False] * 3


def test_one_that_missed_a_few_gets_them_in_order() -> None:
    feed = Feed()
    publish(feed, 1)
    version = publish(feed, 2)
    publish(feed, 3)
    assert [message["at"] for message in sent(feed, version, 2)] == [2.0, 3.0]


def test_one_that_missed_some_gets_the_time_of_now_after_them() -> None:
    feed = Feed()
    version = publish(feed, 1)
    publish(feed, 2)
    for since in (version, ""):
        *missed, last = sent(feed, since, 3 if since else 2)
        assert missed
        assert last == {"at": 5.0, "parts": {}, "rows": {}, "gone": []}
    assert "whole" in sent(feed, "")[0]


def test_one_that_fell_behind_while_it_read_gets_everything_with_the_time_of_that() -> None:
    feed = Feed()
    publish(feed, 1)
    reader = feed.follow(feed.version, 5.0)
    publish(feed, 2)
    for _ in range(3):  # how the stream begins, what was missed, and the time
        next(reader)
    for number in range(3, 100):
        publish(feed, number)
    message = json.loads(next(reader).decode().partition("data: ")[2])
    assert (message["at"], message["whole"]) == (99.0, True)


def test_a_reader_that_waits_is_told_at_once_and_ends_with_the_feed() -> None:
    feed = Feed()
    publish(feed, 1)
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.extend(feed.follow(feed.version, 0.0)))
    reader.start()
    eventually(lambda: feed.readers, "it follows")
    publish(feed, 2)
    eventually(lambda: len(heard) == 2, "it has heard")
    feed.close()
    reader.join()
    assert b"text 2" in heard[1]
    assert feed.readers == 0


def test_a_reader_of_a_page_on_which_nothing_changes_gets_events_and_not_only_comments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server_sent_events, "KEEPALIVE", 0.0)
    feed = Feed()
    publish(feed, 1)
    _, *silence = islice(feed.follow(feed.version, 0.0), 3)
    assert silence == [b"event: alive\ndata: 0\n\n"] * 2


def test_a_version_of_thousands_of_digits_is_none() -> None:
    feed = Feed()
    version = publish(feed, 1, x=1)
    for digits in (20, 5000):
        [message] = sent(feed, f"{version.partition('.')[0]}.{'9' * digits}")
        assert message["whole"]


def test_a_version_of_another_feed_is_none() -> None:
    # A ring that was stopped, and runs again, has another feed.
    before, now = Feed(), Feed()
    publish(before, 1, x=1)
    publish(now, 1, y=1)
    publish(now, 2, y=2)
    [message] = sent(now, before.version)
    assert message["whole"]


# --- a ring's changes -----------------------------------------------------------------------------


def events(*numbers: int) -> tuple[RingEvent, ...]:
    return tuple(RingEvent(f"17000-{number}", "join", "a", None) for number in numbers)


@pytest.mark.parametrize(
    ("since", "new"),
    [
        ("", (3, 5, 12)),
        ("0-0", (3, 5, 12)),
        ("17000", (3, 5, 12)),
        ("17000-3", (5, 12)),
        ("17000-4", (5, 12)),
        ("17000-12", ()),
        ("18000-0", ()),
        ("20000-0", ()),
        ("20001-0", (3, 5, 12)),  # of a history that was lost
    ],
)
def test_changes_after_one_are_those_with_greater_ids(since: str, new: tuple[int, ...]) -> None:
    assert changes_after(events(3, 5, 12), since, 20.0) == events(*new)


def test_a_look_that_brings_a_stream_nothing_new_does_not_read_the_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = events(*range(500))
    read: list[str] = []
    id_ = server_sent_events._id

    def noted(text: str) -> tuple[int, int]:
        read.append(text)
        return id_(text)

    monkeypatch.setattr(server_sent_events, "_id", noted)
    assert changes_after(history, "17000-498", 20.0) == history[-1:]
    assert read == ["17000-498", "17000-499", "17000-498"]


def test_a_stream_goes_on_after_the_last_change_that_a_failover_left(redis: Redis) -> None:
    store = RedisStore(redis, 5.0)
    watcher = RingWatcher(store, "ring", Scoring.expiry(0.0))
    stream = live_changes(watcher, "150")

    def sent(count: int, *history: int) -> list[str]:
        redis.delete("{ring}:events")
        for at in history:
            redis.xadd("{ring}:events", {"kind": "note"}, id=f"{at}-0")
        watcher._again()
        return [next(stream).decode().partition("\n")[0] for _ in range(count)]

    next(stream)
    assert sent(2, 100, 200, 300) == ["id: 200-0", "id: 300-0"]
    assert sent(1, 100, 200, 250) == ["id: 250-0"]
    assert sent(1, 100, 200, 250, 400) == ["id: 400-0"]
    assert sent(1) == [""]
    assert sent(1, 50) == ["id: 50-0"]
    stream.close()
    store.close()


def test_a_stream_sends_all_of_the_many_changes_that_one_look_brings(redis: Redis) -> None:
    store = RedisStore(redis, 5.0)
    watcher = RingWatcher(store, "ring", Scoring.expiry(0.0))
    redis.xadd("{ring}:events", {"kind": "note"}, id="1-0")
    watcher._again()
    stream = live_changes(watcher, "1-0")
    next(stream)
    with redis.pipeline() as many:
        for at in range(2, 702):
            many.xadd("{ring}:events", {"kind": "note"}, id=f"{at}-0")
        many.execute()
    watcher._again()
    for at in range(2, 702):
        assert next(stream).startswith(b"id: %d-0\n" % at)
    stream.close()
    store.close()


def test_a_change_that_another_failover_brings_back_is_sent_once(redis: Redis) -> None:
    store = RedisStore(redis, 5.0)
    watcher = RingWatcher(store, "ring", Scoring.expiry(0.0))
    stream = live_changes(watcher, "100")

    def sent(*history: int) -> str:
        redis.delete("{ring}:events")
        for at in history:
            redis.xadd("{ring}:events", {"kind": "note"}, id=f"{at}-0")
        watcher._again()
        return next(stream).decode().partition("\n")[0]

    next(stream)
    assert sent(100, 200) == "id: 200-0"
    assert sent(100) == ""
    assert sent(100, 200) == "id: 200-0"
    assert [sent(100, 200) for _ in range(3)] == [""] * 3
    stream.close()
    store.close()


def test_who_comes_back_with_a_change_that_a_failover_took_back_misses_none(
    redis: Redis, visit: Visit
) -> None:
    """After each of two failovers the new primary has a change that is earlier than the last."""

    def note(*history: int) -> None:
        with redis.pipeline() as failover:
            failover.delete("{ring}:events")
            for at in history:
                failover.xadd("{ring}:events", {"kind": "note"}, id=f"{at}-0")
            failover.execute()

    def after(change: str) -> list[str]:
        found = visitor.json("/api/changes", ring="ring", after=change)["changes"]
        return [each["id"] for each in found]

    put(redis, "a", 0)
    note(100, 200, 300)
    visitor = visit(rings=["ring"])
    assert after("100-0") == ["200-0", "300-0"]
    note(100, 200, 250)
    eventually(lambda: after("")[-1] == "250-0", "the first failover is seen")
    note(100, 150, 400)
    eventually(lambda: after("")[-1] == "400-0", "the second one is seen")
    assert after("300-0") == after("250-0") == after("100-0") == ["150-0", "400-0"]
    assert after("150-0") == ["400-0"]
    watcher = visitor.service.ring("ring")
    assert watcher is not None
    stream = live_changes(watcher, "300-0")
    found = [next(stream).decode().partition("\n")[0] for _ in range(3)]
    assert found[1:] == ["id: 150-0", "id: 400-0"]
    stream.close()


# --- who may have how many ------------------------------------------------------------------------


def opened(visitor: Visitor, address: str, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return visitor.client.get("/feed", headers=named, environ_base={"REMOTE_ADDR": address})


def test_a_client_that_has_all_streams_gives_up_some_to_others(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent_events, "MOST_STREAMS", 4)
    visitor = visit()
    first, *others = [opened(visitor, "10.0.0.1") for _ in range(4)]
    for stream in (first, *others):
        assert stream.status_code == 200
    refused = opened(visitor, "10.0.0.1")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "15")
    assert "4 of them by you" in refused.text
    assert [opened(visitor, "10.0.0.2").status_code for _ in range(2)] == [200, 200]
    # Now each has two.
    for address in ("10.0.0.1", "10.0.0.2"):
        assert opened(visitor, address).status_code == 503
    assert opened(visitor, "10.0.0.3").status_code == 200
    assert list(first.response) == [b"retry: 1000\n\n"]  # which the test's client had asked for
    # The end of one that was given up gives nobody a place.
    first.close()
    assert opened(visitor, "10.0.0.3").status_code == 503
    others[-1].close()
    assert opened(visitor, "10.0.0.3").status_code == 200


def check_places_are_given_back(app: Flask, path: str) -> None:
    """Three streams may be open, and end. Nothing is sent to them."""
    server = Server(app, "127.0.0.1", 0)
    server.start()
    streams: list[HTTPResponse] = []

    def status() -> int:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("GET", path)
        streams.append(connection.getresponse())
        return streams[-1].status

    try:
        assert [status() for _ in range(4)] == [200, 200, 200, 503]
        for stream in streams:
            stream.close()
        eventually(lambda: status() == 200, "a place is free")
        threads = server.task_dispatcher
        eventually(lambda: threads.active_count == 1, "the threads of the others have ended")
    finally:
        for stream in streams:
            stream.close()
        server.stop(timeout=0.0)


@pytest.fixture
def three_silent_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_sent_events, "MOST_STREAMS", 3)
    monkeypatch.setattr(server_sent_events, "KEEPALIVE", 1000.0)


@pytest.mark.usefixtures("three_silent_streams")
def test_readers_of_a_page_that_are_gone_give_their_places_to_others_at_once() -> None:
    app, feed, streams = Flask("pages"), Feed(), Streams()

    @app.get("/feed")
    def follow() -> Response:
        return streams.response(feed.follow(feed.version, 5.0), "somebody", feed.wake)

    try:
        check_places_are_given_back(app, "/feed")
    finally:
        feed.close()


@pytest.mark.usefixtures("three_silent_streams")
def test_followers_of_a_ring_that_are_gone_give_their_places_to_others_at_once(
    visit: Visit, redis: Redis
) -> None:
    put(redis, "a", 1)
    visitor = visit()
    eventually(lambda: visitor.get("/ring", name="ring").status_code == 200, "the ring is seen")
    check_places_are_given_back(visitor.app, "/api/changes/live?ring=ring")


@pytest.mark.parametrize(
    ("one", "same"),
    [
        pytest.param(("2001:db8::1", {}), ("2001:db8::2", {}), id="network"),
        pytest.param(
            ("10.0.0.7", {"X_Forwarded_User": "ada", "X_Forwarded_For": "1.1.1.1"}),
            ("10.0.0.7", {"X_Forwarded_User": "ada", "X_Forwarded_For": "2.2.2.2"}),
            id="user",
        ),
    ],
)
def test_streams_are_shared_out_by_user_or_network(
    visit: Visit, monkeypatch: pytest.MonkeyPatch, one: Any, same: Any
) -> None:
    monkeypatch.setattr(server_sent_events, "MOST_STREAMS", 2)
    visitor = visit(trusted_proxies=["10.0.0.7"])
    kept = []
    for address, headers in (one, same):
        kept.append(opened(visitor, address, **headers))
        assert kept[-1].status_code == 200
    assert opened(visitor, same[0], **same[1]).status_code == 503
    assert opened(visitor, "10.0.0.7", X_Forwarded_For="3.3.3.3").status_code == 200
