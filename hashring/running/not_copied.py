"""Objects that belong to the process that made them."""

from __future__ import annotations

from typing import Any


class NotCopied:
    """Can be neither copied nor pickled. A subclass that knows how defines ``__reduce__``."""

    @property
    def _made_as(self) -> str:
        """The public name of what makes it."""
        return type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        # Also for copy.copy: the copy would share one session in Redis with the original.
        raise TypeError(
            f"cannot copy or pickle {self._made_as}: its connections and its place in Redis belong "
            f"to this one object. Make another {self._made_as} instead, under a name of its own. "
            "If it is for another process, pass the arguments there, and make it there"
        )
