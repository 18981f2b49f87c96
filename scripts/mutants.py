"""The changes that ``scripts/mutation`` makes to a file, as edits of its text.

Left alone: texts, annotations, decorators, calls that write a log, what an error says, asserts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

Edit = tuple[int, int, str]
SWAPS: Final = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "~=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
    "and": "or",
    "or": "and",
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "//": "*",
    "%": "*",
    "&": "|",
    "|": "&",
    "min": "max",
    "max": "min",
    "True": "False",
    "False": "True",
    "true": "false",
    "false": "true",
}
WORDS: Final = re.compile(r"is\s+not\b|not\s+in\b|is\b|in\b|and\b|or\b|//|[<>=!]=|[-<>+*/%&|]")
SPOKEN: Final = re.compile(r"(_?log(ger)?|warnings)\b|self\._?log\b|\w*(Error|Warning)\b|field$")


class PythonEdits(ast.NodeVisitor):
    """The changes to a Python file, gathered by one visit."""

    def __init__(self, text: str) -> None:
        self.text, self.found = text, list[Edit]()
        lines = text.splitlines(keepends=True)
        self._starts = [sum(map(len, lines[:n])) for n in range(len(lines))]
        self._lines = lines
        self.visit(ast.parse(text))

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, first: ast.AST, last: ast.AST | None = None) -> tuple[int, int]:
        last = last or first
        return (
            self._at(first.lineno, first.col_offset),  # type: ignore[attr-defined]
            self._at(last.end_lineno, last.end_col_offset),  # type: ignore[attr-defined]
        )

    def change(self, first: ast.AST, instead: str, last: ast.AST | None = None) -> None:
        self.found.append((*self.span(first, last), instead))

    def swap(self, left: ast.AST, right: ast.AST) -> None:
        """Another operator between the two."""
        start, end = self.span(left)[1], self.span(right)[0]
        between = re.sub(r"#.*", lambda comment: " " * len(comment[0]), self.text[start:end])
        if match := WORDS.search(between):
            instead = SWAPS.get(" ".join(match[0].split()))
            if instead:
                self.found.append((start + match.start(), start + match.end(), instead))

    def negate(self, test: ast.expr) -> None:
        start, end = self.span(test)
        self.change(test, f"(not ({self.text[start:end]}))")

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
            self.swap(left, right)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.swap(left, right)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (ast.JoinedStr, ast.Constant)
        if not any(isinstance(s, texts) and not _number(s) for s in (node.left, node.right)):
            self.swap(node.left, node.right)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self.found.append((self.span(node)[0], self.span(node.operand)[0], ""))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self.change(node, SWAPS[str(node.value)])
        elif _number(node):
            self.change(node, f"{node.value + 1!r}")  # type: ignore[operator]

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in ("min", "max"):
            self.change(node, SWAPS[node.id])

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self.negate(node.test)
        self.change(node.body[0], "pass", node.body[-1])
        if node.orelse and not isinstance(node.orelse[0], ast.If):
            self.change(node.orelse[0], "pass", node.orelse[-1])
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self.negate(test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self.negate(node.test)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not self._speaks(node.value):
            self.change(node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return
        if isinstance(node.targets[0], ast.Attribute | ast.Subscript):
            self.change(node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.change(node, "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.change(node.value, "None")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if self._speaks(node):
            return
        listed: list[ast.AST] = [*node.args, *node.keywords]
        for keyword in node.keywords:
            # A keyword with zip's strict= is an assert.
            if keyword.arg not in (None, "strict"):
                n = listed.index(keyword)
                if n:
                    self.found.append((self.span(listed[n - 1])[1], self.span(keyword)[1], ""))
                elif len(listed) == 1:
                    self.change(keyword, "")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.generic_visit(node)

    def _speaks(self, call: ast.Call) -> bool:
        start, end = self.span(call.func)
        return SPOKEN.match(self.text[start:end]) is not None

    def visit_Raise(self, node: ast.Raise) -> None:
        self.change(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self.change(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self.change(node, "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


LUA_TOKEN: Final = re.compile(
    r"--[^\n]*|'[^'\n]*'|\"[^\"\n]*\"|\d+(?:\.\d+)?|[\w.]+|[<>=~]=|\.\.|\S", re.ASCII
)
LUA_BEFORE_UNARY: Final = {
    *"(,={<>+-*/",
    "==",
    "~=",
    "<=",
    ">=",
    "..",
    "return",
    "and",
    "or",
    "not",
}


def lua_edits(text: str) -> Iterator[Edit]:
    """The changes to a Lua file, by its tokens and lines."""
    tokens = [t for t in LUA_TOKEN.finditer(text) if not t[0].startswith("--")]
    for before, token in zip([None, *tokens], tokens, strict=False):
        word, (start, end) = token[0], token.span()
        if re.fullmatch(r"\d+", word):
            yield start, end, str(int(word) + 1)
        elif word in ("math.min", "math.max"):
            yield start, end, f"math.{SWAPS[word[5:]]}"
        elif word in ("not", "-") and (word == "not" or (before and before[0] in LUA_BEFORE_UNARY)):
            yield start, end, " "
        elif word in SWAPS and word not in ("in", "%"):
            yield start, end, SWAPS[word]
        elif word in ("if", "elseif"):
            then = next(t for t in tokens if t.start() > start and t[0] == "then")
            yield end, then.start(), f" not ({text[end : then.start()].strip()}) "
            yield end, then.start(), f" false and ({text[end : then.start()].strip()}) "
    for line in re.finditer(r"^ *(?!local |function |end|if |for |else|--)(\S.*\S) *$", text, re.M):
        statement = line[1]
        if statement.count("(") == statement.count(")") and statement.count("{") == statement.count(
            "}"
        ):
            if match := re.match(r"return +(?!nil\b)\S", statement):
                yield line.start(1) + match.end() - 1, line.end(1), "nil"
            elif re.match(r"[\w.]+\(.*\)$|[\w.]+(\[.*\])? = [^{]*[^,]$", statement):
                yield line.start(1), line.end(1), ""


def edits(path: Path) -> list[Edit]:
    """All changes to a file, in the order of its text."""
    text = path.read_text()
    return sorted(set(PythonEdits(text).found if path.suffix == ".py" else lua_edits(text)))


def compiles(path: Path, text: str) -> bool:
    try:
        if path.suffix == ".py":
            compile(text, str(path), "exec")
        else:
            import lupa.lua51  # noqa: PLC0415 - `--help` runs without packages

            lupa.lua51.LuaRuntime().compile(text)
    except Exception:  # noqa: BLE001 - each compiler has its own
        return False
    return True
