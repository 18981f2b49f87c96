"""A bar on the terminal for the work of Spark that is under way."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Final

from pyspark import SparkContext

_BETWEEN_BARS: Final = 0.5  # seconds


def draw_stages(context: SparkContext) -> None:
    """Show a bar for the stages that run, until Spark ends. Blocks until then."""
    tracker = context.statusTracker()
    shown = False
    with suppress(Exception):  # whatever is asked of a Java that has ended
        while True:
            found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            stages = [stage for stage in found if stage is not None]
            if stages or shown:
                total = sum(stage.numTasks for stage in stages)
                _draw(sum(stage.numCompletedTasks for stage in stages), total, not stages)
            shown = bool(stages)
            time.sleep(_BETWEEN_BARS)


def draw_operation(stages, inflight_tasks, operation_id, done):  # type: ignore[no-untyped-def]
    """Show a bar for an operation of Spark Connect: a progress handler of a session."""
    # The parameters' names are Spark's: it passes them by keyword.
    total = sum(stage.num_tasks for stage in stages)
    _draw(sum(stage.num_completed_tasks for stage in stages), total, done)


def _draw(completed: int, total: int, done: bool) -> None:
    width = 40 * completed // max(total, 1)
    end = "\r" + " " * 70 + "\r" if done else ""
    sys.stderr.write(f"\r[{'=' * width}{' ' * (40 - width)}] {completed}/{total} tasks{end}")
    sys.stderr.flush()
