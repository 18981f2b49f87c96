"""Wait for coroutines that may swallow a cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

# After how many seconds a task that goes on is cancelled again.
_AGAIN: Final = 0.5

# For how many seconds a task is cancelled before it is left to itself.
_PATIENCE: Final = 5.0


async def outcome(work: Awaitable[T], within: float) -> T:
    """Await the work; lose no cancel, and wait for a bounded time.

    Args:
        within: seconds that the work may take at most.

    Raises:
        TimeoutError: it took longer, and has been cancelled.
        ConnectionAbortedError: see :func:`result_of`.
    """
    task = asyncio.ensure_future(work)
    if not await over(task, within):
        raise TimeoutError(f"not done within {within:g} s")
    return result_of(task)


def result_of(task: asyncio.Future[T]) -> T:
    """The result of a task that is over, for a caller whom nobody has cancelled.

    Raises:
        ConnectionAbortedError: the task was cancelled nevertheless. A credential provider whose
            callers await one task is cancelled for all of them with any of them.
    """
    if task.cancelled():
        raise ConnectionAbortedError("cancelled, and not by its caller")
    return task.result()


async def over(task: asyncio.Future[Any], within: float | None = None) -> bool:
    """Wait until a task is over; return whether it ended by itself.

    A caller that is cancelled cancels the task until that is over, and then ends as cancelled.
    The task may have swallowed the first cancel, and go on as if nothing had happened:
    ``asyncio.wait_for`` does so before Python 3.12, when what it waits for is done in the same turn
    of the event loop, and redis-py sends every command through it.

    Args:
        within: seconds after which it is cancelled.

    Not guaranteed: that it is over. A task that swallows every cancel is left running.
    """
    cancelled = await _wait(task, within)
    if cancelled is None and task.done():
        return True
    clock = asyncio.get_running_loop().time
    until = clock() + _PATIENCE
    while not task.done() and clock() < until:
        task.cancel()
        cancelled = await _wait(task, _AGAIN) or cancelled
    ended = task.done() and not task.cancelled()
    if cancelled is not None:
        if ended:
            task.exception()  # Otherwise asyncio logs that the exception was never retrieved.
        raise cancelled
    return ended


def call_back(callback: Callable[..., Any], *arguments: Any) -> Any:
    """Call a user's callback; what it returns.

    Raises:
        Exception: what the callback raised; ``RuntimeError`` for a ``CancelledError``, as of a
            future that it asked for its result: it would end the caller, whom nobody cancelled.
    """
    try:
        return callback(*arguments)
    except asyncio.CancelledError as error:
        raise RuntimeError("it raised CancelledError") from error


async def callback_over(callback: asyncio.Future[Any]) -> None:
    """Wait until a user's callback is over, which runs in a task of its own.

    So one that ends by being cancelled is over like any other, and is not the end of the caller.

    Raises:
        Exception: what the callback raised; ``RuntimeError`` if it was cancelled.
    """
    await over(callback)
    if callback.cancelled():
        raise RuntimeError("it was cancelled")
    callback.result()


async def _wait(task: asyncio.Future[Any], timeout: float | None) -> asyncio.CancelledError | None:
    """Wait for a task; the cancel of the caller, if that ended the wait."""
    try:
        await asyncio.wait([task], timeout=timeout)
    except asyncio.CancelledError as error:
        return error
    return None
