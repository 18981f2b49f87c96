"""Draw the pictures of the documentation into docs/_pictures: .venv/bin/python scripts/pictures.py.

Rings, points, layers and states are the program's own: a ring is a :class:`hashring.Ring`, the
layers are those that pyproject.toml enforces, and states are those of the tables that code goes by.
Each picture takes the colour of the text around it, so that it follows dark and light.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from pkgutil import resolve_name

from state_diagrams import diagram

from hashring import RING_SIZE, Ring
from hashring.testing import ring_of

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "_pictures"

BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
STYLE = (
    "<style>text { fill: currentColor; font: 13px sans-serif }"
    " .small { font-size: 11px } .strong { font-weight: bold }"
    " @media (prefers-color-scheme: dark) { svg:root { color: #dddddd } }</style>"
)


def svg(width: int, height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    return "\n".join([f'{head} width="{width}" height="{height}">', STYLE, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, anchor: str = "middle", kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def line(
    x1: float, y1: float, x2: float, y2: float, colour: str = "currentColor", **more: str
) -> str:
    extra = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}"{extra}/>'


def arrow(
    x1: float, y1: float, x2: float, y2: float, colour: str = "currentColor", **more: str
) -> str:
    angle = math.atan2(y2 - y1, x2 - x1)
    ends = [
        (x2 - 9 * math.cos(angle + turn), y2 - 9 * math.sin(angle + turn)) for turn in (0.4, -0.4)
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x2, y2), *ends])
    return line(x1, y1, x2, y2, colour, **more) + f'<polygon points="{points}" fill="{colour}"/>'


def box(
    x: float, y: float, width: float, height: float, title: str, *lines: str, colour: str = ""
) -> str:
    fill = f'fill="{colour}" fill-opacity="0.15" ' if colour else 'fill="none" '
    stroke = colour or "currentColor"
    found = (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" {fill}'
        f'stroke="{stroke}"/>'
    )
    top = y + height / 2 - 8 * len(lines) + 4
    found += text(x + width / 2, top, title, kind="strong")
    for number, words in enumerate(lines, 1):
        found += text(x + width / 2, top + 16 * number, words, kind="small")
    return found


# --- the ring -----------------------------------------------------------------------------------

NODES = {"alder": BLUE, "birch": ORANGE, "cedar": GREEN}
BEFORE = ring_of(
    """
    alder: 3e8 2.2e9 3.6e9
    birch: 1.1e9 1.7e9 2.9e9
    """
)
AFTER = ring_of(
    """
    alder: 3e8 2.2e9 3.6e9
    birch: 1.1e9 1.7e9 2.9e9
    cedar: 7e8 2.5e9
    """
)


def place(x: float, y: float, radius: float, point: float) -> tuple[float, float]:
    angle = 2 * math.pi * point / RING_SIZE - math.pi / 2
    return x + radius * math.cos(angle), y + radius * math.sin(angle)


def circle(
    ring: Ring, x: float, y: float, radius: float, moved: Ring | None = None
) -> Iterator[str]:
    """A ring, an arc for each range in its owner's colour; what moved stands out."""
    for name in ring.nodes:
        for begin, end in ring.node_ranges(name):
            length = (end - begin) % RING_SIZE or RING_SIZE
            x1, y1 = place(x, y, radius, begin)
            x2, y2 = place(x, y, radius, begin + length - RING_SIZE / 250)
            large = int(length > RING_SIZE / 2)
            gained = moved is not None and moved.owner_of_point(begin) != name
            width = 22 if gained else 10
            yield (
                f'<path d="M{x1:.1f},{y1:.1f} A{radius:g},{radius:g} 0 {large} 1 {x2:.1f},{y2:.1f}"'
                f' fill="none" stroke="{NODES[name]}" stroke-width="{width}"/>'
            )
            x3, y3 = place(x, y, radius + (36 if gained else 26), begin + length / 2)
            yield text(x3, y3 + 4, name, "middle", "strong" if gained else "small")


def join() -> str:
    parts = [text(150, 24, "before", kind="strong"), text(470, 24, "cedar joined", kind="strong")]
    parts += circle(BEFORE, 150, 170, 100)
    parts += circle(AFTER, 470, 170, 100, BEFORE)
    parts.append(arrow(285, 170, 325, 170))
    parts.append(text(320, 318, "Only the wide ranges have another owner. All other keys stay."))
    return svg(640, 335, parts)


def key() -> str:
    point = AFTER.hash_algorithm.point("hello")
    owner = AFTER.owner("hello")
    parts = [
        box(10, 120, 110, 50, "hello", "the key"),
        arrow(120, 145, 165, 145),
        box(165, 120, 130, 50, f"{point:,}".replace(",", " "), "its CRC-32"),
        arrow(295, 145, 332, 145),
    ]
    parts += circle(AFTER, 500, 150, 100)
    x, y = place(500, 150, 82, point)
    parts.append(line(500, 150, x, y, stroke_dasharray="4 3"))
    parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="currentColor"/>')
    parts.append(text(490, 170, "hello", kind="strong"))
    parts.append(text(320, 318, f"The range that holds the point belongs to {owner}."))
    return svg(640, 335, parts)


# --- sequences ----------------------------------------------------------------------------------

Step = tuple[int, int, str]


def sequence(
    actors: Sequence[tuple[str, str]], steps: Sequence[Step | tuple[int, str, str]]
) -> str:
    """Actors with their colours; steps from one to another, or a note beside one of them."""
    gap = 640 / len(actors)
    at = [gap * (number + 0.5) for number in range(len(actors))]
    height = 64 + 40 * len(steps) + 16
    parts = []
    for x, (name, colour) in zip(at, actors, strict=True):
        parts.append(box(x - 62, 10, 124, 32, name, colour=colour))
        parts.append(line(x, 42, x, height - 8, stroke_dasharray="3 4", opacity="0.6"))
    for number, (first, second, words) in enumerate(steps):
        y = 84 + 40 * number
        if isinstance(second, int):
            middle = (at[first] + at[second]) / 2
            parts.append(arrow(at[first], y, at[second], y))
            parts.append(text(middle, y - 6, words, kind="small"))
        else:
            x = at[first]
            parts.append(
                f'<rect x="{x - 66:g}" y="{y - 18:g}" width="132" height="26" rx="4" '
                f'fill="{second}" fill-opacity="0.25" stroke="{second}"/>'
            )
            parts.append(text(x, y, words, kind="small"))
    return svg(640, height, parts)


def fencing() -> str:
    actors = [
        ("first holder", BLUE),
        ("Redis", PINK),
        ("second holder", ORANGE),
        ("database", GREEN),
    ]
    return sequence(
        actors,
        [
            (0, 1, "take the key lock"),
            (1, 0, "token 41"),
            (0, ORANGE, "paused"),
            (1, PINK, "lock expires"),
            (2, 1, "take the key lock"),
            (1, 2, "token 42"),
            (2, 3, "write, token 42"),
            (0, BLUE, "wakes up"),
            (0, 3, "write, token 41"),
            (3, 0, "refused: 41 is older than 42"),
        ],
    )


def handoff() -> str:
    actors = [("member alder", BLUE), ("Redis (group)", PINK), ("member birch", ORANGE)]
    return sequence(
        actors,
        [
            (2, 1, "joins"),
            (1, 0, "please let go of partition 2"),
            (0, BLUE, "on_revoked: finish"),
            (0, 1, "has let go"),
            (1, 2, "partition 2 is yours, token 7"),
            (2, ORANGE, "on_assigned: begin"),
            (1, PINK, "other partitions stay"),
        ],
    )


def change() -> str:
    actors = [("a node", BLUE), ("Redis", PINK), ("its neighbours", ORANGE)]
    return sequence(
        actors,
        [
            (0, 1, "one script: join, leave or heartbeat"),
            (1, PINK, "finds neighbours"),
            (1, 2, "to each: its new ranges"),
            (2, ORANGE, "new snapshot"),
            (2, 1, "next heartbeat: a digest of them"),
            (1, 2, "its ranges, if they differ"),
            (2, ORANGE, "missed one? mended"),
        ],
    )


# --- the timeline of a crash --------------------------------------------------------------------


def crash() -> str:
    left, scale, y = 70, 6.2, 110  # pixels a second
    beats, ttl = (0, 10, 20), 60

    def x(seconds: float) -> float:
        return left + scale * seconds

    parts = [
        text(10, y + 4, "node", "start", "strong"),
        line(x(0), y, x(84), y, stroke_width="2"),
        text(10, y + 84, "others", "start", "strong"),
        line(x(0), y + 80, x(84), y + 80, stroke_width="2"),
    ]
    parts += [f'<circle cx="{x(beat):g}" cy="{y}" r="5" fill="{BLUE}"/>' for beat in beats]
    parts.append(text(x(10), y - 16, "heartbeats, every 10 s", kind="small"))
    parts.append(text(x(26), y - 16, "crash", kind="strong"))
    parts.append(line(x(26), y - 10, x(26), y + 10, ORANGE, stroke_width="3"))
    parts.append(arrow(x(20), y + 26, x(20 + ttl), y + 26, PINK))
    parts.append(text(x(50), y + 42, "ttl: 60 s after the last heartbeat", kind="small"))
    parts.append(line(x(20 + ttl), y - 10, x(20 + ttl), y + 90, PINK, stroke_dasharray="4 3"))
    parts.append(text(x(20 + ttl), y - 16, "expires", kind="small"))
    parts += [
        f'<circle cx="{x(beat):g}" cy="{y + 80}" r="5" fill="{GREEN}"/>'
        for beat in (4, 14, 24, 34, 44, 54, 64, 74, 83)
    ]
    parts.append(text(x(83), y + 108, "takeover", kind="strong"))
    parts.append(
        text(320, 30, "Keys have no owner from the crash to the first heartbeat after the expiry.")
    )
    return svg(640, 236, parts)


# --- boxes --------------------------------------------------------------------------------------


def deployment() -> str:
    parts = []
    for number in range(3):
        y = 40 + 80 * number
        parts.append(
            box(20, y, 150, 56, f"process {number + 1}", "your loop + a node", colour=BLUE)
        )
        parts.append(arrow(170, y + 28, 268, 148))
    parts += [
        box(270, 112, 130, 72, "Redis", "one primary,", "replica, Sentinel", colour=PINK),
        box(480, 40, 140, 56, "hashring serve", "page, API, metrics", colour=GREEN),
        box(480, 120, 140, 56, "hashring", "commands, doctor", colour=GREEN),
        box(480, 200, 140, 56, "Spark", "load, plan, audit", colour=GREEN),
        arrow(480, 68, 402, 128),
        arrow(480, 148, 402, 148),
        arrow(480, 228, 402, 168),
        text(95, 24, "the fleet", kind="strong"),
        text(550, 24, "people", kind="strong"),
        text(320, 290, "Nodes talk to Redis only, never to each other."),
    ]
    return svg(640, 305, parts)


ABOUT = {
    "cli": "the command hashring",
    "health": "is it well, and if not, why",
    "drawing": "SVG of rings, groups, plots",
    "web": "page, API, events",
    "spark": "jobs on all keys",
    "testing": "memory, clock, simulator",
    "metrics": "Prometheus",
    "node": "RingNode",
    "groups": "PartitionGroup",
    "fencing": "refuse stale tokens",
    "running": "the loop, in threads and greenlets",
    "protocol": "machines: what to do next",
    "store": "Lua scripts, commands",
    "ring_files": "ring files",
    "atomic_writes": "files, whole or not at all",
    "held_signals": "signals wait for what is under way",
    "monkey_patching": "threads and locks below gevent",
    "asyncio_cancellation": "tasks that are cancelled",
    "core": "ring, hashing, assignors",
    "errors": "one tree of errors",
}


def layers() -> list[list[str]]:
    """The rooms of each layer of pyproject.toml, the highest first."""
    source = (ROOT / "pyproject.toml").read_text()
    contract = source[source.index('id = "layers"') :]
    listed = contract[contract.index("layers = [") : contract.index("\n]")]
    return [re.findall(r"\w+", found) for found in re.findall(r'"([^"]+)"', listed)]


def rooms() -> str:
    """The layers, the highest on top; each imports only what is below."""
    parts, y = [], 16
    for layer in layers():
        width = (600 - 12 * (len(layer) - 1)) / len(layer)
        for number, name in enumerate(layer):
            pure = name in ("core", "errors", "protocol")
            parts.append(
                box(
                    20 + number * (width + 12),
                    y,
                    width,
                    46,
                    name,
                    ABOUT[name],
                    colour=GREEN if pure else BLUE,
                )
            )
        y += 58
    parts.append(text(320, y + 8, "A room imports only rooms below it. Green rooms do no I/O."))
    return svg(640, y + 24, parts)


# --- ways through the code ------------------------------------------------------------------------

# The files that one thing passes, in order, with what each does; tests follow these ways and
# compare. Beside a way stand values, tables, and what only hands a call on.
CONTAINS_WAY = {
    "node/key_answers.py": "not held: the snapshot cannot say yes",
    "node/user_calls.py": "runs the flow on the user's thread",
    "node/lock_flows.py": "the flow: ask, take, ask again",
    "protocol/locks/lock_book.py": "decides, by its pieces: verdicts, taking",
    "store/locks/commands.py": "the command acquire, and its reply",
    "store/redis_store.py": "one call: store/locks/acquire.lua",
}
CONTAINS_BESIDE = (
    "core/hashing.py",
    "core/state_table.py",
    "node/ring_node.py",
    "protocol/locks/shared_lock_book.py",
    "protocol/flow.py",
    "protocol/locks/verdicts.py",
    "protocol/locks/calls_under_way.py",
    "protocol/locks/hold_off.py",
    "protocol/locks/key_states.py",
    "protocol/locks/key_limit.py",
    "protocol/locks/ring_place.py",
    "protocol/locks/taking.py",
    "running/forked.py",
    "store/ring/key_names.py",
)
CHANGE_WAY = {
    "store/redis_store.py": "the message arrives on a subscription",
    "running/machine_loop.py": "listener to loop, through the inbox",
    "protocol/node/node_machine.py": "who is the message for?",
    "protocol/node/own_ranges_machine.py": "is it newer than what is known?",
    "core/own_ranges.py": "the new ranges, from the message's text",
    "node/start_and_stop.py": "publishes; calls on_change beside it",
    "node/base_node.py": "the machine's new view",
    "node/key_answers.py": "one assignment: the next answer uses it",
}
CHANGE_BESIDE = (
    "core/ranges.py",
    "core/ring_change_message.py",
    "core/select_keys.py",
    "core/state_table.py",
    "core/value_checks.py",
    "node/node_log.py",
    "node/node_runner.py",
    "protocol/silent_subscription.py",
    "running/native_threads.py",
    "running/threads_and_greenlets.py",
    "store/ring/key_names.py",
)
HANDOFF_WAY = {
    "core/groups/next_state.py": "asks the owner for a partition",
    "protocol/group/group_decider.py": "commits that",
    "store/group/commands.py": "the decision: store/group/commit.lua",
    "store/redis_store.py": "one call; and the message to the owner",
    "running/machine_loop.py": "passes the message to the owner's machine",
    "protocol/group/base_member_machine.py": "renews at once: store/group/beat.lua",
    "core/groups/member_holdings.py": "revoked, until a deadline; then released",
    "groups/base_member.py": "puts it into the inbox of the callbacks",
    "groups/sync_member.py": "calls on_revoked; its return goes back",
}
HANDOFF_BESIDE = (
    "core/assignors/balanced.py",
    "core/assignors/quotas.py",
    "core/assignors/situation.py",
    "core/assignors/target_assignment.py",
    "core/groups/draining_partitions.py",
    "core/groups/json_codec.py",
    "core/groups/partition_column.py",
    "core/groups/pending_moves.py",
    "core/groups/reported_loads.py",
    "core/groups/partition_map.py",
    "core/groups/state.py",
    "core/groups/view_changes.py",
    "core/state_table.py",
    "core/value_checks.py",
    "groups/base_partition_group.py",
    "groups/callbacks.py",
    "groups/timely_store.py",
    "protocol/flow.py",
    "protocol/group/group_member_machine.py",
    "protocol/group/partitions_in_time.py",
    "protocol/listening.py",
    "protocol/machine_steps.py",
    "protocol/silent_subscription.py",
    "running/callback_turns.py",
    "running/loop_log.py",
    "running/native_threads.py",
    "running/threads_and_greenlets.py",
    "store/command.py",
    "store/group/key_names.py",
    "store/group/reading.py",
)


def way(files: Mapping[str, str]) -> str:
    parts = []
    for number, (file, does) in enumerate(files.items()):
        y = 8 + 56 * number
        colour = GREEN if file.startswith(("core/", "protocol/")) else BLUE
        parts.append(box(20, y, 230, 34, file, colour=colour))
        parts.append(text(270, y + 21, does, anchor="start"))
        if number:
            parts.append(arrow(135, y - 22, 135, y))
    return svg(640, 56 * len(files), parts)


def contains_way() -> str:
    return way(CONTAINS_WAY)


def change_way() -> str:
    return way(CHANGE_WAY)


def handoff_way() -> str:
    return way(HANDOFF_WAY)


# --- states ---------------------------------------------------------------------------------------

STATE_TABLES = (
    "hashring.protocol.node.node_states.NODE_LIFE",
    "hashring.protocol.node.node_states.SIGHT",
    "hashring.protocol.node.node_states.CLAIM",
    "hashring.protocol.listening.LISTENING",
    "hashring.protocol.silent_subscription.SUBSCRIPTION_LIFE",
    "hashring.protocol.locks.key_states.KEY_LIFE",
    "hashring.protocol.group.base_member_machine.MEMBER_LIFE",
    "hashring.protocol.group.group_decider.DECIDER_LIFE",
    "hashring.core.groups.state.PHASES",
    "hashring.protocol.group.lease_challenge_machine.TABLE_SIGHT",
)


PICTURES = {
    each.__name__: each
    for each in (
        join,
        key,
        fencing,
        handoff,
        change,
        crash,
        deployment,
        rooms,
        contains_way,
        change_way,
        handoff_way,
    )
}


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw())
    for table in STATE_TABLES:
        (FOLDER / f"{table}.svg").write_text(diagram(resolve_name(table)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
