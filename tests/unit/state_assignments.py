"""Finds where the package sets a state: only a table may move it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType


def places_that_set(attribute: str, package: ModuleType) -> list[str]:
    """Files and functions of a package and its subpackages that assign to an attribute."""
    return [
        place
        for place, node in _nodes(package)
        for target in _targets(node)
        for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        if isinstance(part, ast.Attribute) and part.attr == attribute
    ]


def places_that_pass(argument: str, package: ModuleType) -> list[str]:
    """Files and functions of a package that call something with an argument of that name."""
    return [
        place
        for place, node in _nodes(package)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == argument
    ]


def _nodes(package: ModuleType) -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(Path(package.__path__[0]).rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    yield f"{path.name}:{function.name}", node


def _targets(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Assign(targets=targets):
            return targets
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return [target]
    return []
