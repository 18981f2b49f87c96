"""An assignor of one's own, imported by its name on the command line."""

from __future__ import annotations

import importlib
import sys

from hashring.core.assignors import Assignor, as_assignor
from hashring.errors import ConfigError


def imported_assignor(text: str) -> Assignor:
    """The assignor that ``MODULE:NAME`` names.

    Raises:
        ConfigError: it cannot be imported, or is no assignor.
    """
    module, _, name = text.partition(":")
    # As `python -m` would: what is in the directory one stands in can be imported.
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise ConfigError(
            "assignor", text, f"cannot be imported ({error}): give MODULE:NAME"
        ) from error
    finally:
        sys.path.pop(0)
    return as_assignor(found)
