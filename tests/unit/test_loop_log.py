"""What loops write to the log."""

from __future__ import annotations

import pytest

from hashring.running.loop_log import LoopLog

LOG = LoopLog("hashring")


def test_a_name_reorders_no_line_of_the_log_and_ends_none(caplog: pytest.LogCaptureFixture) -> None:
    LOG.warning("hashring %s: %s after %g s", "a\u202eb", "gone\u2028", 2.5)
    assert caplog.messages == ["hashring a\\u202eb: gone\\u2028 after 2.5 s"]
