"""Modules of the folder scripts, which is no package."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tests.conftest import ROOT


def of_scripts(name: str) -> Any:
    """The module of this name; it may import its neighbours."""
    folder = str(ROOT / "scripts")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)
