"""Signals that wait while something must not be left half way."""

import signal
import threading

import pytest

from hashring.held_signals import handled, held_back
from tests.programs import python


@pytest.fixture
def noted():
    """The signals SIGTERM, SIGHUP and SIGINT that a program has noted."""
    seen = []
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {each: signal.signal(each, lambda number, _: seen.append(number)) for each in numbers}
    yield seen
    for each, old in before.items():
        signal.signal(each, old)


def test_a_signal_takes_effect_once_at_the_end(noted):
    with held_back():
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
        assert noted == []
    assert noted == [signal.SIGTERM]
    signal.raise_signal(signal.SIGTERM)
    assert noted == [signal.SIGTERM] * 2


def test_a_signal_takes_effect_where_it_is_let_in_and_not_again(noted):
    with held_back() as let_in:
        let_in()
        signal.raise_signal(signal.SIGHUP)
        assert noted == []
        let_in()
        assert noted == [signal.SIGHUP]
    assert noted == [signal.SIGHUP]


def test_a_second_signal_waits_while_the_first_unwinds(noted):
    steps = []

    def interrupt(number, _):
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)

    def work():
        with held_back() as let_in:
            try:
                signal.raise_signal(signal.SIGINT)
                let_in()
                steps.append("goes on")
            finally:
                signal.raise_signal(signal.SIGINT)
                steps.append("in order")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["in order"]


def test_a_signal_takes_effect_although_the_handler_of_another_raises(noted):
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def work():
        with held_back():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert noted == [signal.SIGTERM, signal.SIGHUP]


class Came(Exception):
    pass


@pytest.mark.parametrize("calls", range(1, 7))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_while_handlers_change_leaves_no_other_handler(
    noted, monkeypatch, number, calls
):
    def raises(number, _):
        raise Came

    signal.signal(number, raises)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(each) for each in numbers]
    change = signal.signal
    left = iter(range(calls))

    def changed(number_changed, handler):
        change(number_changed, handler)
        if next(left, None) == calls - 1:
            signal.raise_signal(number)

    def work():
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", changed)
            with held_back():
                pass

    with pytest.raises(Came):
        work()
    assert [signal.getsignal(each) for each in numbers] == before


def test_a_signal_without_a_handler_kills_at_the_end():
    program = """
import signal
from hashring.held_signals import held_back

with held_back() as let_in:
    signal.raise_signal(signal.SIGTERM)
    let_in()
    print("in order", flush=True)
print("goes on", flush=True)
"""
    ended = python("-c", program)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "in order\n")


def test_a_signal_that_is_ignored_stays_so(noted):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with held_back() as let_in:
        signal.raise_signal(signal.SIGHUP)
        let_in()
    assert noted == []
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_what_a_handler_chooses_to_ignore_from_then_on_is_ignored(noted):
    def once(number, _):
        noted.append(number)
        signal.signal(number, signal.SIG_IGN)

    signal.signal(signal.SIGHUP, once)
    with held_back() as let_in:
        signal.raise_signal(signal.SIGHUP)
        let_in()
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)
    assert noted == [signal.SIGHUP]


def test_another_thread_changes_no_handler(noted):
    seen = []

    def work():
        before = signal.getsignal(signal.SIGTERM)
        with held_back() as let_in:
            let_in()
            seen.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def test_a_handler_that_is_not_python_s_is_left_alone(noted, monkeypatch):
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    with handled((signal.SIGTERM,), lambda *_: None):
        signal.raise_signal(signal.SIGTERM)
    assert noted == [signal.SIGTERM]
