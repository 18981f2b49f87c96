"""Record ``hashring demo`` and the service's page: .venv/bin/python scripts/recordings.py.

Plays the demonstration once, with the service beside it, and writes two files into
docs/_static: demo.svg shows what the terminal printed, and page.gif what the page showed at the
same time. The page needs Chromium: scripts/browser fetches it.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "docs" / "_static"
CHROMIUM: Final = ROOT / ".servers" / "bin" / "chromium"

# --- the terminal ---------------------------------------------------------------------------------

COLUMNS, ROWS = 96, 22
CELL, LINE, MARGIN = 8.2, 18, 14  # pixels
SCENE = 2.5  # seconds
LOOK: Final = """
svg { background: #ffffff; color: #1b1f24 } .bar { fill: #0072b2 }
@media (prefers-color-scheme: dark) {
  svg { background: #111418; color: #e6e8eb } .bar { fill: #56b4e9 }
}
text { font: 13.6px monospace; fill: currentColor; white-space: pre }
.scene { visibility: hidden; animation: show %(whole)gs step-end infinite }
@keyframes show { 0%% { visibility: visible } %(share).3f%% { visibility: hidden } }
@media (prefers-reduced-motion: reduce) { .scene { animation: none } .last { visibility: visible } }
"""


def terminal(scenes: list[list[str]]) -> str:
    """The SVG of a terminal that shows one scene after another, each at the lines' end."""
    width, height = COLUMNS * CELL + 2 * MARGIN, ROWS * LINE + 2 * MARGIN
    style = LOOK % {"whole": SCENE * len(scenes), "share": 100 / len(scenes)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}">',
        f"<style>{style}</style>",
    ]
    shown: list[str] = []
    for number, scene in enumerate(scenes):
        shown += ["", *scene]
        last = " last" if number == len(scenes) - 1 else ""
        parts.append(f'<g class="scene{last}" style="animation-delay:{number * SCENE:g}s">')
        for row, words in enumerate(shown[-ROWS:], 1):
            place = f'x="{MARGIN}" y="{MARGIN + row * LINE - 4}" xml:space="preserve"'
            drawn = re.sub("█+", r'<tspan class="bar">\g<0></tspan>', escape(words[:COLUMNS]))
            parts.append(f"<text {place}>{drawn}</text>")
        parts.append("</g>")
    return "\n".join([*parts, "</svg>\n"])


# --- the page -------------------------------------------------------------------------------------

VIEW: Final = ViewportSize(width=1100, height=720)
FRAME: Final = 0.5  # seconds


def moving_picture(shots: list[bytes]) -> bytes:
    """The GIF of screenshots, half as large, without those that repeat the one before."""
    frames: list[Image.Image] = []
    for shot in shots:
        whole = Image.open(io.BytesIO(shot)).convert("RGB")
        small = whole.resize((whole.width * 3 // 4, whole.height * 3 // 4))
        if not frames or small.tobytes() != frames[-1].tobytes():
            frames.append(small)
    reduced = [frame.quantize(64, dither=Image.Dither.NONE) for frame in frames]
    found = io.BytesIO()
    reduced[0].save(
        found,
        "GIF",
        save_all=True,
        append_images=reduced[1:],
        duration=int(1000 * FRAME),
        loop=0,
        optimize=True,
    )
    return found.getvalue()


# --- both -----------------------------------------------------------------------------------------


def hashring(*arguments: str) -> subprocess.Popen[str]:
    program = [sys.executable, "-m", "hashring", *arguments]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def line_with(lines: Iterable[str], pattern: str) -> str:
    """What the pattern's group matches in the first line that has it."""
    for words in lines:
        found = re.search(pattern, words)
        if found:
            return found[1]
    sys.exit(f"no line with {pattern!r} was printed")


def play(page: Page) -> tuple[list[list[str]], list[bytes]]:
    """Play the demonstration: its paragraphs, and screenshots of the ring's page meanwhile."""
    demo = hashring("demo")
    assert demo.stdout is not None
    first = demo.stdout.readline()
    second = demo.stdout.readline()
    ring, url = line_with([second], r"ring '(\S+)'"), line_with([second], r"on (\S+);")
    service = hashring("serve", "--url", url, "--port", "0")
    assert service.stdout is not None
    try:
        page.goto(line_with(service.stdout, r"serving on (\S+)") + f"ring?name={ring}")
        shots = []
        while demo.poll() is None:
            shots.append(page.screenshot())
            page.wait_for_timeout(1000 * FRAME)
    finally:
        service.terminate()
        service.wait()
    paragraphs = (first + second + demo.stdout.read()).strip().split("\n\n")
    return [paragraph.split("\n") for paragraph in paragraphs], shots


def main() -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        scenes, shots = play(browser.new_page(viewport=VIEW))
        browser.close()
    scenes[0].insert(0, "$ hashring demo")
    (FOLDER / "demo.svg").write_text(terminal(scenes))
    (FOLDER / "page.gif").write_bytes(moving_picture(shots))


if __name__ == "__main__":
    main()
