"""Whether the garbage collector is at work, for what raises errors at any line."""

from __future__ import annotations

from types import FrameType


def in_finalizer(frame: FrameType | None) -> bool:
    """Whether a frame was called by a ``__del__``, out of which Python lets no error."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
