"""What ``hashring watch`` draws on a terminal. Needs rich; imported by that command alone."""

from __future__ import annotations

import signal
from contextlib import closing
from itertools import cycle, groupby
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from hashring.cli.common_options import Settings
from hashring.cli.connection import Connection
from hashring.cli.events import event_line
from hashring.cli.nodes import node_line
from hashring.cli.output import blocks
from hashring.cli.repeated_looks import LastLook, looks
from hashring.cli.signals import around_a_stop
from hashring.core.hashing import RING_SIZE
from hashring.core.safe_text import printable
from hashring.errors import RetryLater
from hashring.held_signals import held_back
from hashring.store.ring.node_reports import NodeFacts, Sees, node_facts
from hashring.store.ring.ring_events import RingEvent
from hashring.store.ring.snapshot import Snapshot

# Letters tell the nodes apart where there are no colours, and where two nodes share one.
_MARKS: Final = ascii_uppercase + ascii_lowercase + digits
_COLORS: Final = (
    "bright_blue",
    "bright_yellow",
    "bright_magenta",
    "bright_green",
    "bright_cyan",
    "bright_red",
    "bright_white",
)
_STRIP_ROWS: Final = 3
_FRAME_ROWS: Final = 7  # of a screen, besides the strip, the nodes and the events
_BAR: Final = 20
_WIDE: Final = 90  # columns from which there is room for everything
_NARROW: Final = 60  # columns below which there is room for the least
_LEAST_NODES: Final = 3
_EVENTS: Final = 8  # the last ones, at most


def watch_screen(settings: Settings, connection: Connection) -> None:
    """Watch the ring on the terminal, until Ctrl-C."""
    look = LastLook(connection, _EVENTS)
    screen = Screen(f"ring {settings.ring!r} on {printable(connection.shown_url)}")

    def draw(failure: RetryLater | None) -> Group:
        nodes: list[NodeFacts] = node_facts(look.snapshot, settings.scoring)
        return screen.draw(look.snapshot, nodes, look.events, failure)

    live = Live(draw(None), screen=True, auto_refresh=False, console=screen.console)

    # In the middle of these, Ctrl-C or Ctrl-Z would leave the terminal half set up.
    def enter() -> None:
        with held_back(signal.SIGTSTP):
            live.start(refresh=True)

    def leave() -> None:
        with held_back(signal.SIGTSTP):
            live.stop()

    with around_a_stop(leave, enter):
        try:
            enter()
            with closing(looks(connection, look.again, look.pause)) as found:
                for _, failure in found:
                    with held_back(signal.SIGTSTP):
                        live.update(draw(failure), refresh=True)
        finally:
            leave()


class Screen:
    """Draws rings on the terminal that standard output is."""

    def __init__(self, title: str) -> None:
        self.console = Console()
        self._title = title
        self._looks: dict[str, tuple[str, str]] = {}
        self._next = zip(cycle(_MARKS), cycle(_COLORS), strict=False)

    def draw(
        self,
        snapshot: Snapshot,
        nodes: list[NodeFacts],
        events: list[RingEvent],
        failure: RetryLater | None,
    ) -> Group:
        """The screen.

        Args:
            failure: why the rest is old, if Redis does not answer now.
        """
        height = self.console.height
        rows = max(_LEAST_NODES, height - _FRAME_ROWS - _STRIP_ROWS - len(events))
        head = Text(f"{self._title}   epoch {snapshot.stamp.epoch}", style="bold")
        head.no_wrap, head.overflow = True, "ellipsis"
        parts: list[Text | Table | Rule] = [head]
        if failure is not None:
            parts.append(Text(f"what follows is old: {failure}", style="bold red"))
        parts += [Text(), self._strip(snapshot), Text()]
        if nodes:
            parts += [self._nodes(nodes, rows), Text()]
        if events:
            parts.append(Rule("last events", align="left", style="dim"))
            parts += [_cut(event_line(event)) for event in reversed(events)]
        return Group(*parts)

    def _look(self, node: str) -> tuple[str, str]:
        # For as long as we watch: a node that comes back looks as before.
        if node not in self._looks:
            self._looks[node] = next(self._next)
        return self._looks[node]

    def _strip(self, snapshot: Snapshot) -> Text:
        """The ring from point 0 to the last, row by row; each cell is the owner of its middle."""
        ring = snapshot.ring()
        width = max(1, self.console.width)  # COLUMNS may be 0
        cells = width * _STRIP_ROWS
        if not ring.node_count:
            return Text("nobody owns anything", style="dim")
        owners = [
            ring.owner_of_point((2 * cell + 1) * RING_SIZE // (2 * cells)) for cell in range(cells)
        ]
        text = Text(no_wrap=True)
        for row in range(0, cells, width):
            for node, run in groupby(owners[row : row + width]):
                mark, color = self._look(node)
                text.append(mark * len(list(run)), style=f"black on {color}")
            text.append("\n")
        text.right_crop()
        return text

    def _nodes(self, nodes: list[NodeFacts], rows: int) -> Table:
        wide, narrow = self.console.width >= _WIDE, self.console.width < _NARROW
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("", width=1)
        table.add_column("Share", justify="right", no_wrap=True)
        if wide:
            table.add_column("", width=_BAR)
            table.add_column("Replicas", justify="right", no_wrap=True)
        if not narrow:
            table.add_column("Heartbeat", justify="right", no_wrap=True)
        table.add_column("Expires", justify="right", no_wrap=True)
        if not narrow:
            table.add_column("Sees", no_wrap=True)
        # The only one that rich may make narrower while there is room for the others.
        table.add_column("Node")
        # The fullest first when not all fit; in the order of the ring otherwise.
        shown = nodes
        if len(nodes) > rows:
            shown = sorted(nodes, key=lambda node: -node.share)[: rows - 1]
        most = max((node.share for node in nodes), default=0.0) or 1.0
        for node in shown:
            mark, color = self._look(node.name)
            bar = Text(blocks(round(_BAR * node.share / most)), style=color)
            is_late = not node.away and node.ttl is not None and node.expires_in < node.ttl / 2
            late = "yellow" if is_late else ""
            seen = "" if node.sees is Sees.CURRENT else "yellow"
            share, replicas, beat, expires, sees, _, name = node_line(node)
            table.add_row(
                Text(mark, style=f"black on {color}"),
                share,
                *((bar, replicas) if wide else ()),
                *(() if narrow else (Text(beat, style=late),)),
                Text(expires, style="bold red" if node.expired else late),
                *(() if narrow else (Text(sees, style=seen),)),
                _cut(name),
            )
        if len(shown) < len(nodes):
            cells = [""] * (len(table.columns) - 1)
            table.add_row(*cells, _cut(f"… and {len(nodes) - len(shown)} more"))
        return table


def _cut(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")
