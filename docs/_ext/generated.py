"""Sphinx: pages that are made from the program itself.

- ``.. http-api::`` describes the service's API from its OpenAPI document.
- ``.. settings:: hashring.RingNode`` is a table of a class' arguments with their defaults.
- ``.. peaks::`` is a table of how uneven random rings are.
- ``.. simulated-rings::`` is a table of rings that were drawn and measured.
- ``.. picture:: FILE`` puts an SVG file into the page.
- ``.. states:: hashring.protocol.node.node_states.NODE_LIFE`` is the diagram of a table of states,
  and the table.
- Help texts of commands are escaped for reStructuredText.
- ``alerts.yml`` beside the pages has the alert rules with the address of each runbook.
"""

from __future__ import annotations

import html
import importlib
import inspect
import json
import pkgutil
import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import hashring
from hashring.core.expected_loads import expected_peak_to_mean
from hashring.web.openapi import document


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    """The names of an answer's fields."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    found: list[str] = []
    for part in schema.get("allOf", []):
        found += _fields(part, schemas)
    return found + list(schema.get("properties", {}))


def _operation(path: str, method: str, about: dict[str, Any], schemas: dict[str, Any]) -> str:
    title = f"{method.upper()} {path}"
    text = f"\n{title}\n{'-' * len(title)}\n\n{about['summary']}\n\n"
    for parameter in about.get("parameters", []):
        default = parameter["schema"].get("default")
        without = "optional" if default is None else f"``{default}`` unless given"
        need = "" if parameter.get("required") else f" ({without})"
        text += f"- ``{parameter['name']}``{need}: {parameter.get('description', '')}\n"
    body = about.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        schema = schemas[body["schema"]["$ref"].rpartition("/")[2]]
        fields = ", ".join(
            f"``{name}``{'' if name in schema['required'] else ' (optional)'}"
            for name in schema["properties"]
        )
        meaning = " ".join(schema["description"].split())
        text += f"- The body is JSON with {fields}: {meaning[:1].lower()}{meaning[1:]}\n"
    good = about["responses"].get("200", {}).get("content", {})
    for kind, content in good.items():
        fields = ", ".join(f"``{name}``" for name in _fields(content.get("schema", {}), schemas))
        text += f"\nAnswers 200 with ``{kind}``{': ' + fields if fields else ''}.\n"
    others = sorted(set(about["responses"]) - {"200"})
    if others:
        text += f"Other statuses: {', '.join(others)}.\n"
    return text


class HttpApi(SphinxDirective):
    """A section for each operation."""

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        described = document("")
        schemas = described["components"]["schemas"]
        text = "".join(
            _operation(path, method, about, schemas)
            for path, methods in described["paths"].items()
            for method, about in methods.items()
        )
        return self.parse_text_to_nodes(text, allow_section_headings=True)


class Settings(SphinxDirective):
    """Arguments and defaults of a class."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        module, _, name = self.arguments[0].rpartition(".")
        described = getattr(importlib.import_module(module), name)
        text = ".. list-table::\n   :header-rows: 1\n\n   * - argument\n     - default\n"
        for argument in inspect.signature(described).parameters.values():
            required = argument.default is inspect.Parameter.empty
            shown = "required" if required else f"``{argument.default!r}``"
            text += f"   * - ``{argument.name}``\n     - {shown}\n"
        return self.parse_text_to_nodes(text)


class Peaks(SphinxDirective):
    """The busiest node's share over its fair share, expected on random rings, as a table."""

    replicas = (16, 64, 128, 256, 512)
    nodes = (10, 50, 100, 1000)

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        text = ".. list-table::\n   :header-rows: 1\n\n   * - replicas\n"
        text += "".join(f"     - {count:,} nodes\n" for count in self.nodes)
        for points in self.replicas:
            text += f"   * - {points}\n"
            for count in self.nodes:
                text += f"     - {expected_peak_to_mean(((points, count),)):.2f}\n"
        return self.parse_text_to_nodes(text)


class SimulatedRings(SphinxDirective):
    """What the last run of ``scripts/bench/run simulate`` found, as a table.

    A cell is the mean peak and the 95th percentile; in italics the mean that is expected of random
    rings, or the mean peak after a node has left.
    """

    line = re.compile(r"(random|balanced), (\d+) x (\d+), \d+ rings: ")

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        name, path = self.env.relfn2path("/benchmarks/results.json")
        self.env.note_dependency(name)
        found: dict[tuple[bool, int], dict[int, str]] = {}
        for line in json.loads(Path(path).read_text())["simulate"]["result"]["lines"]:
            if kind := self.line.match(line["what"]):
                balanced, count, points = kind[1] == "balanced", int(kind[2]), int(kind[3])
                peak, after, _ = line["ours"].split("; ")
                expected = expected_peak_to_mean(((points, count),))
                beside = f"{after} after" if balanced else f"{expected:.2f} expected"
                found.setdefault((balanced, points), {})[count] = f"{peak} *{beside}*"
        counts = sorted({count for row in found.values() for count in row})
        text = ".. list-table::\n   :header-rows: 1\n\n   * - replicas\n"
        text += "".join(f"     - {count:,} nodes\n" for count in counts)
        for (balanced, points), row in sorted(found.items()):
            text += f"   * - {points}{', balanced' * balanced}\n"
            text += "".join(f"     - {row.get(count, '')}\n" for count in counts)
        return self.parse_text_to_nodes(text)


class Picture(SphinxDirective):
    """An SVG file as a part of the page, so that it follows dark and light with it."""

    required_arguments = 1
    option_spec: ClassVar = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        return [_picture(self, self.arguments[0], self.options["alt"])]


def _picture(directive: SphinxDirective, file: str, alt: str) -> nodes.Node:
    name, path = directive.env.relfn2path(file)
    directive.env.note_dependency(name)
    text = Path(path).read_text()
    text = text[text.index("<svg") :]
    label = html.escape(alt, quote=True)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
    return nodes.raw("", f'<div class="picture">{text}</div>', format="html")


class States(SphinxDirective):
    """A diagram of a table of states, as scripts/pictures.py drew it, and the table itself."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        table = pkgutil.resolve_name(self.arguments[0])
        *names, last = [state.value for state in table.meanings]
        alt = f"States {', '.join(names)} and {last}, with an arrow for each event of the table"
        drawn = _picture(self, f"/_pictures/{self.arguments[0]}.svg", alt)
        return [drawn, *self.parse_text_to_nodes(table.as_text())]


def escape(app: Sphinx, context: Any, lines: list[str]) -> None:
    """Keep ``*.parquet`` in a help text from being emphasis."""
    lines[:] = [re.sub(r"(?<!\\)\*", r"\\*", line) for line in lines]


def alerts_of_site(site: str) -> str:
    """The alert rules for who publishes the pages at ``site``, which ends with a slash."""
    rules = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "alerts.yml"
    return rules.read_text().replace("runbook_url: ", f"runbook_url: {site}")


def write_alerts(app: Sphinx, failure: Exception | None) -> None:
    """Put the alert rules beside the pages."""
    if failure is None and app.builder.format == "html":
        Path(app.outdir, "alerts.yml").write_text(alerts_of_site(app.config.html_baseurl))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("build-finished", write_alerts)
    app.add_directive("http-api", HttpApi)
    app.add_directive("settings", Settings)
    app.add_directive("picture", Picture)
    app.add_directive("states", States)
    app.add_directive("peaks", Peaks)
    app.add_directive("simulated-rings", SimulatedRings)
    app.setup_extension("sphinx_click")
    for part in ("description", "epilog", "usage"):
        app.connect(f"sphinx-click-process-{part}", escape)
    return {"parallel_read_safe": True, "version": hashring.__version__}
