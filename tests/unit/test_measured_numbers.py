"""Numbers that were measured stand where a program writes them, and nowhere else by hand.

A copy typed into another page is wrong after the next run. Other pages link to the measure's part
of the benchmarks page (``:ref:`benchmark-locks```).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRITTEN_BY_PROGRAMS = ("benchmarks.rst", "scaling.rst", "chaos.rst")
BLOCK = re.compile(r"^\.\. benchmarks: begin$.*?^\.\. benchmarks: end$", re.M | re.S)
LITERAL = re.compile(r"(?:::|^\.\. code:: \w+)\n\n(?:(?:[ \t]+.*)?\n)+", re.M)
MEASURED = re.compile(
    r"\b\d[\d.,]*\s?(?:µs|ms|ns)\b"
    r"|\b\d[\d.,]* times (?:as long|as many|as fast|faster|slower|less|longer|the time)\b"
    r"|\b\d[\d.,]* (?:k|M|G)B (?:at most|of memory)\b"
)
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.rst"), *(ROOT / "docs").rglob("*.rst"))
    if page.name not in WRITTEN_BY_PROGRAMS
)


def measured(text: str) -> list[str]:
    """What looks measured, outside of examples and of what a program writes."""
    return MEASURED.findall(LITERAL.sub("\n", BLOCK.sub("", text)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_number_that_was_copied_from_a_measurement(page: Path) -> None:
    assert measured(page.read_text()) == []


@pytest.mark.parametrize(
    "text",
    ["taken in 57 ms by one", "some 1.24 µs", "2.9 times as long as", "held 2.0 GB at most"],
)
def test_a_copied_number_is_found(text: str) -> None:
    assert measured(f"A table::\n\n  after 3 ms\n\nA sentence, {text}.\n")
