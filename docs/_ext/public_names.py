"""Sphinx: docstrings of this project point to the public names.

- A name that a type hint or a ``Raises:`` section gives without its package, or with the module in
  which it is written, leads to the entry of the public name.
- Entries of ``Raises:`` and ``Attributes:`` such as ``RedisUnavailable, RedisRefused: why`` become
  one for each name.
- In ``Returns:`` nothing names a type, so what stands before a colon is none.
"""

from __future__ import annotations

import pkgutil
import re
from contextlib import suppress
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import hashring

_SEVERAL = re.compile(r"^(\s+)(\w+(?:, \w+)+):(.*)$")
_COLON = re.compile(r":(?= |$)")
_HOMES = ("hashring", "hashring.testing", "hashring.errors")


def split_entries(  # noqa: PLR0917 - Sphinx calls it so
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Divide entries for several names, and keep prose from being read as a type."""
    done: list[str] = []
    splits = False
    left = list(lines)
    while left:
        line = left.pop(0)
        if line.strip() and not line.startswith(" "):
            splits = line.strip() in ("Raises:", "Attributes:")
        if done and done[-1].strip() == "Returns:":
            line = _COLON.sub(" \N{EN DASH}", line, count=1)
        match = _SEVERAL.match(line) if splits else None
        if match is None:
            done.append(line)
            continue
        more: list[str] = []  # the lines on which the entry goes on
        while left and left[0].startswith(f"{match[1]} "):
            more.append(left.pop(0))
        for each in match[2].split(", "):
            done += [f"{match[1]}{each}:{match[3]}", *more]
    lines[:] = done


def _is_plain(target: str) -> bool:
    """Whether it is not in the reference, and right: prose, a name of its module, an inner name."""
    if not target.replace(".", "").isidentifier() or "." not in target:
        return True
    with suppress(ImportError):
        return pkgutil.resolve_name(target) is not None
    module, _, name = target.rpartition(".")
    with suppress(ImportError, AttributeError):
        return hasattr(pkgutil.resolve_name(module), name)
    return False


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.Element
) -> nodes.Element | None:
    """Find the public name that a reference means."""
    if node.get("refdomain") != "py":
        return None
    name = node.get("reftarget", "").rpartition(".")[2]
    python = env.get_domain("py")
    target = next(
        (f"{home}.{name}" for home in _HOMES if f"{home}.{name}" in python.objects),  # type: ignore[attr-defined]
        None,
    )
    if target is None:
        return contnode if _is_plain(node.get("reftarget", "")) else None
    entry = python.objects[target]  # type: ignore[attr-defined]
    role = {"exception": "exc", "class": "class", "function": "func"}.get(entry.objtype, "obj")
    if contnode.astext() == node.get("reftarget"):
        contnode = nodes.literal(name, name, classes=["xref", "py"])
    return python.resolve_xref(
        env, node.get("refdoc", env.docname), app.builder, role, target, node, contnode
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", split_entries, priority=100)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "version": hashring.__version__}
