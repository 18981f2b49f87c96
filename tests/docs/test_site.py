"""The documentation builds without a warning, and its links lead somewhere."""

from __future__ import annotations

import html
import inspect
import json
import pkgutil
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from sphinx.util.inventory import InventoryFile

import hashring
import hashring.fencing
import hashring.testing
from docs._ext.generated import alerts_of_site
from hashring.web.openapi import document
from tests.conftest import ROOT
from tests.unit.script_modules import of_scripts

pictures = of_scripts("pictures")


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag == "link" and given.get("rel") == "stylesheet":
            self.loads.add(given["href"])
        elif tag in ("script", "img", "source", "object", "iframe"):
            self.loads |= {given[name] for name in ("src", "data") if name in given}


def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    pages = {path: Page(path) for path in site.rglob("*.html")}
    lost = []
    for path, page in pages.items():
        for link in page.links | page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if (
                target in pages and place and place not in pages[target].places
            ) or not target.exists():
                lost.append(f"{path.relative_to(site)}: {link}")
    assert lost == []


def test_the_page_on_spark_has_the_rings_that_were_measured(site: Path) -> None:
    text = (site / "reference" / "spark.html").read_text()
    taken = json.loads((ROOT / "docs" / "benchmarks" / "results.json").read_text())["simulate"]
    peaks = [
        line["ours"].partition(";")[0]
        for line in taken["result"]["lines"]
        if re.match(r"(random|balanced), \d", line["what"])
    ]
    assert len(peaks) > 10
    assert [peak for peak in peaks if peak not in text] == []
    (answer,) = [
        line["ours"] for line in taken["result"]["lines"] if "peak at most" in line["what"]
    ]
    replicas, within = re.match(r"(\d+) replicas; of 1,000 drawn rings ([\d.]+%)", answer).groups()
    assert f"<strong>{replicas}</strong>" in text
    assert f"{within} of 1,000" in text


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not [each for each in Page(path).loads if urlsplit(each).netloc], path


def test_pages_that_the_package_names_are_there() -> None:
    named = [
        (file, name)
        for file in (ROOT / "hashring").rglob("*.py")
        for name in re.findall(
            r"(?:documentation: |docs/)((?:\w+/)+[\w-]+)(?:\.rst)?", file.read_text()
        )
    ]
    assert named
    for file, name in named:
        assert (ROOT / "docs" / f"{name}.rst").exists(), f"{file}: {name}"


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    with (site / "objects.inv").open("rb") as file:
        found = InventoryFile.load(file, "", lambda base, address: address)
    named = {name for role, names in found.items() if role.startswith("py:") for name in names}
    wanted = {f"hashring.{name}" for name in hashring.__all__ if name != "__version__"}
    wanted |= {f"hashring.testing.{name}" for name in hashring.testing.__all__}
    wanted |= {f"hashring.fencing.{name}" for name in ("Fence", "RedisFence", "AsyncRedisFence")}
    assert wanted - named == set()


def test_the_page_of_settings_has_the_values_of_all_defaults(site: Path) -> None:
    rows = re.findall(r"<tr.*?</tr>", (site / "reference" / "settings.html").read_text(), re.S)
    cells = [re.sub(r"<[^>]+>", "", html.unescape(row)).split("\n") for row in rows]
    shown = [tuple(filter(None, map(str.strip, row))) for row in cells]
    for described in (hashring.RingNode, hashring.PartitionGroup):
        for argument in inspect.signature(described).parameters.values():
            if argument.default is not inspect.Parameter.empty:
                assert (argument.name, repr(argument.default)) in shown, described


def test_no_entry_of_a_docstring_is_misread(site: Path) -> None:
    # Sphinx takes for a type what stands before a colon in an attribute's first line or in that of
    # what is returned, and all but one of several names before a colon.
    for page in (site / "reference").rglob("*.html"):
        text = page.read_text()
        assert '">Type<span class="colon">' not in text, page
        assert "<em>,</em>)" not in text, page
        for kind in re.findall(r"Return type<.*?<dd[^>]*>(.*?)</dd>", text, re.S):
            plain = re.sub(r"<[^>]+>", "", kind).strip()
            assert " " not in plain or "[" in plain or "|" in plain, f"{page}: {plain}"


def test_every_request_of_the_service_is_in_the_reference(site: Path) -> None:
    text = (site / "reference" / "http-api.html").read_text()
    for path, methods in document("")["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}<" in text


def test_pictures_say_what_they_show(site: Path) -> None:
    shown = 0
    for path in site.rglob("*.html"):
        for tag in re.findall(r"<svg [^>]*>", path.read_text()):
            if 'class="picture"' in tag or 'role="img"' in tag:
                shown += 1
                assert re.search(r'aria-label="[^"]{10,}"', tag), path
    assert shown > 10


def test_pages_show_tables_of_states_as_the_code_has_them(site: Path) -> None:
    text = "".join(path.read_text() for path in (site / "explanation").glob("*.html"))
    cells = Counter(
        re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td>.*?</td>", text, re.S)
    )
    rows = Counter(
        html.escape(f"{event.value} -> {after.value}", quote=False)
        for name in pictures.STATE_TABLES
        for _, event, after in pkgutil.resolve_name(name)
    )
    assert len(rows) > 60
    assert not rows - cells


def test_every_alert_has_a_description_and_a_section_of_the_runbooks(site: Path) -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    page = Page(site / "operations" / "runbooks.html")
    text = (ROOT / "docs" / "operations" / "runbooks.rst").read_text()
    sections = re.findall(r"^(Hashring\w+)\n=+\n(.*?)(?=^\.\. _|\Z)", text, re.M | re.S)
    assert [name for name, _ in sections] == [rule["alert"] for rule in rules]
    for rule in rules:
        assert rule["annotations"]["description"], rule["alert"]
        address, _, place = rule["annotations"]["runbook_url"].partition("#")
        assert address == "operations/runbooks.html"
        assert place in page.places
    assert (site / "alerts.yml").exists()
    published = yaml.safe_load(alerts_of_site("https://docs.example/hashring/"))["groups"]
    for group in published:
        for rule in group["rules"]:
            address = rule["annotations"]["runbook_url"]
            assert address.startswith("https://docs.example/hashring/operations/runbooks.html#")
    for name, section in sections:
        for part in ("Meaning", "Impact", "Check", "Fix", "Escalate"):
            assert f"**{part}.**" in section, name
