"""The page in a real browser: it is live, says what is asked, and nothing in a name can run."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Request,
    expect,
    sync_playwright,
)
from redis import Redis

from hashring import PartitionGroup
from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.spark.analysis.html_report import Report
from hashring.store.embedded_server import RedisServer
from hashring.web import Service, create_app, server_sent_events
from hashring.web.ring_watcher import RingWatcher
from hashring.web.waitress_server import Server
from tests.conftest import LONG, PATIENCE, ROOT, eventually
from tests.hosts import Host
from tests.proxy import Proxy
from tests.web.conftest import HOSTILE, TOKEN, Running, Visit, nodes_on, put, serving

pytestmark = pytest.mark.one_server

expect.set_options(timeout=PATIENCE * 1000)

PHONE = {"width": 390, "height": 800}
TABLET = {"width": 768, "height": 1024}
DESKTOP = {"width": 1280, "height": 900}
WIDE = {"width": 1920, "height": 1080}


def chromium() -> str:
    """The browser that scripts/browser fetched, or that the machine has."""
    fetched = ROOT / ".servers" / "bin" / "chromium"
    found = str(fetched) if fetched.exists() else shutil.which("chromium")
    if found is None:
        pytest.fail("there is no chromium: scripts/browser fetches one, or says why it cannot")
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Root and most containers cannot have a sandbox; it meets this service alone.
    arguments = ["--no-sandbox"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=arguments, timeout=PATIENCE * 1000
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def running(module_redis: RedisServer) -> Iterator[Running]:
    with serving(module_redis.url, "--allow-actions", HASHRING_TOKEN=TOKEN) as found:
        yield found


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport=DESKTOP)  # type: ignore[arg-type]
    context.set_default_timeout(PATIENCE * 1000)
    yield context
    context.close()


class Watched:
    """A tab, and everything that went wrong in it."""

    def __init__(self, page: Page, home: str) -> None:
        self.page = page
        self.wrong: list[str] = []
        self._home = home
        self._looks = {
            "console": lambda message: self.wrong.append(f"console: {message.text}"),
            "pageerror": lambda error: self.wrong.append(f"error: {error}"),
            "dialog": lambda dialog: self.wrong.append(f"dialog: {dialog.message}"),
            "request": self._requested,
        }
        for event, look in self._looks.items():
            page.on(event, look)  # type: ignore[call-overload]

    def leave(self) -> None:
        """Give the page back as it was."""
        for event, look in self._looks.items():
            self.page.remove_listener(event, look)
        self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
        self.page.goto("about:blank")
        self.page.context.clear_cookies()

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(self._home + "/"):
            self.wrong.append(f"request: {request.url}")

    def wide(self) -> list[str]:
        """What makes the page wider than its window."""
        return self.page.evaluate(
            """() => document.documentElement.scrollWidth <= innerWidth ? [] :
            [...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll, svg")
              && e.getBoundingClientRect().right > innerWidth + 1)
              .map((e) => e.outerHTML.slice(0, 100))"""
        )


@pytest.fixture(scope="module")
def shared_page(browser: Browser) -> Iterator[Page]:
    """For tests one after the other. A new page for each would take longer than many a test."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE * 1000)
    yield context.new_page()
    context.close()


@pytest.fixture
def tab(shared_page: Page, running: Running) -> Iterator[Watched]:
    shared_page.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
    watched = Watched(shared_page, running.url)
    yield watched
    watched.leave()


def opened(tab: Watched, running: Running, address: str) -> Page:
    """The page, once it is live."""
    tab.page.goto(running.url + address)
    expect(tab.page.locator("#live")).to_have_text("live")
    return tab.page


def wait_until_read(running: Running, ring: str, nodes: int) -> None:
    """Wait until the service has read so many nodes: it may read a ring while a test writes it."""

    def has_read() -> bool:
        answer = json.loads(running.ask(f"/api/ring?ring={ring}")[1])
        return bool(answer.get("nodes") == nodes)

    eventually(has_read, f"the service has read {nodes} nodes of {ring}")


def row(page: Page, name: str) -> Any:
    return page.locator("#rows tr").filter(has=page.get_by_role("link", name=name, exact=True))


def test_a_node_that_joins_and_one_that_is_killed_change_the_page(
    client: Redis, module_redis: RedisServer, running: Running, tab: Watched
) -> None:
    with nodes_on(client, "live", "stays", ttl=30, heartbeat_interval=0.3):
        page = opened(tab, running, "/ring?name=live")
        page.evaluate("window.sameDocument = true")
        expect(page.locator(".hr-node")).to_have_count(1)
        with Host("thread") as host:
            host.node(
                module_redis.url, "live", name="dies", ttl=1.5, heartbeat_interval=0.3
            ).start()
            expect(row(page, "dies")).to_be_visible()
            expect(page.locator(".hr-node")).to_have_count(2)
            expect(page.locator("#figures dl dd").first).to_have_text("2")
            expect(page.locator("#log")).to_contain_text("dies")
            expect(page.locator("#news")).to_have_text("dies joined")
            host.kill()
        expect(row(page, "dies")).to_have_count(0)
        expect(page.locator(".hr-node")).to_have_count(1)
        expect(page.locator("#log .expire").first).to_be_visible()
        assert page.evaluate("window.sameDocument") is True
    assert tab.wrong == []


def test_a_key_is_looked_up_and_marked_without_a_new_page(
    client: Redis, running: Running, tab: Watched
) -> None:
    put(client, "low", 0, ring="keys")
    put(client, "high", RING_SIZE // 2, ring="keys")
    page = opened(tab, running, "/ring?name=keys")
    page.evaluate("window.sameDocument = true")
    page.get_by_label("Key", exact=True).fill("hello")
    page.keyboard.press("Enter")
    expect(page.locator("#lookup")).to_contain_text("907060870")
    expect(page.locator("#lookup dd b")).to_have_text("low")
    expect(page.locator(".hr-mark")).to_have_count(1)
    assert page.evaluate("window.sameDocument") is True
    # The owner changes with the ring, and the answer with it.
    put(client, "new", 907060000, ring="keys")
    expect(page.locator("#lookup dd b")).to_have_text("new")
    page.get_by_label("Key", exact=True).fill("other")
    page.get_by_role("button", name="Look up").click()
    expect(page.locator("#lookup")).not_to_contain_text("907060870")
    page.go_back()
    expect(page.locator("#lookup")).to_contain_text("907060870")
    assert page.get_by_label("Key", exact=True).input_value() == "hello"
    assert tab.wrong == []


def test_a_node_that_is_clicked_says_who_would_inherit(
    client: Redis, running: Running, tab: Watched
) -> None:
    for number in range(4):
        put(client, f"n{number}", number * RING_SIZE // 4, ring="heirs")
    page = opened(tab, running, "/ring?name=heirs")
    row(page, "n2").get_by_role("link", name="n2", exact=True).click()
    expect(page.locator("#inherit")).to_contain_text("If n2 leaves, 1 node inherits its 25.00%")
    expect(page.locator(".heirs tbody th")).to_have_text(["n1"])
    expect(page.locator(".hr-node.hr-dim")).to_have_count(3)
    # The middle of an arc's box is not on the arc.
    page.locator(".hr-node .hr-share").nth(3).dispatch_event("click")
    expect(page.locator("#inherit")).to_contain_text("If n3 leaves")
    row(page, "n3").get_by_role("link", name="n3", exact=True).click()
    expect(page.locator("#inherit b")).to_have_count(0)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    row(page, "n1").get_by_role("link", name="n1", exact=True).click()
    expect(page.get_by_role("link", name="Drain it")).to_be_in_viewport()
    assert tab.wrong == []


def test_a_table_that_comes_anew_leaves_nothing_of_the_one_before(
    client: Redis, running: Running, tab: Watched
) -> None:
    for number in range(4):
        put(client, f"n{number}", number * RING_SIZE // 4, ring="anew")
    page = opened(tab, running, "/ring?name=anew")
    for name in ("n1", "n2", "n3"):
        row(page, name).get_by_role("link", name=name, exact=True).click()
        expect(page.locator("#inherit")).to_contain_text(f"If {name} leaves")
    tools = page.context.new_cdp_session(page)
    box = tools.send("Runtime.evaluate", {"expression": "document.getElementById('inherit')"})
    asked = {"objectId": box["result"]["objectId"]}
    listeners = tools.send("DOMDebugger.getEventListeners", asked)["listeners"]
    tools.detach()
    assert [each["type"] for each in listeners] == ["scroll"]
    assert tab.wrong == []


@pytest.mark.parametrize("size", [PHONE, pytest.param(DESKTOP, marks=pytest.mark.long)])
def test_nothing_in_a_name_or_a_key_runs_or_breaks_the_layout(
    client: Redis, running: Running, tab: Watched, size: Any
) -> None:
    client.xadd("{hostile}:events", {"kind": HOSTILE[0], "by": HOSTILE[1]})
    client.set("{hostile}:epoch", "1 ab")
    for number, name in enumerate(HOSTILE):
        put(client, name, number * 1000, ring="hostile", told={"host": name, "pid": name})
    wait_until_read(running, "hostile", len(HOSTILE))
    ring = HOSTILE[0]
    put(client, HOSTILE[1], 7, ring=ring)
    client.set(f"{{{ring}}}:epoch", "1 ab")
    tab.page.set_viewport_size(size)  # type: ignore[arg-type]
    page = opened(tab, running, "/ring?name=hostile")
    title = page.title()
    expect(page.locator("#rows tr")).to_have_count(len(HOSTILE))
    for name in HOSTILE:
        page.get_by_label("Key", exact=True).fill(name)
        page.keyboard.press("Enter")
        expect(page.locator("#lookup .found")).to_be_visible()
        page.locator("#rows tr a.node").nth(HOSTILE.index(name)).click()
        expect(page.locator("#inherit")).to_contain_text("If ")
        assert tab.wide() == []
    page.get_by_label("Key", exact=True).fill("k" * 10_000)
    page.keyboard.press("Enter")
    expect(page.locator("#lookup .found")).to_be_visible()
    assert tab.wide() == []
    assert page.title() == title
    opened(tab, running, "/")
    assert tab.wide() == []
    # The verdict above the list names it too until it has been read once.
    page.locator("#rings").get_by_role("link", name=ring).click()
    expect(page.locator("#rows tr")).to_have_count(1)
    assert tab.wide() == []
    assert page.locator("img, iframe, script:not([src])").count() == 0
    assert tab.wrong == []


@pytest.mark.parametrize(
    "nodes", [*(pytest.param(nodes, marks=pytest.mark.long) for nodes in (1, 10)), 200]
)
def test_the_page_fits_its_window(
    client: Redis, running: Running, tab: Watched, nodes: int
) -> None:
    ring = f"fits-{nodes}"
    for number in range(nodes):
        points = [(number * 7919 + 104729 * k) * 65537 % RING_SIZE for k in range(16)]
        put(client, f"ip-10-0-0-{number}.eu.internal:{4000 + number}", *points, ring=ring)
    for size in (WIDE, DESKTOP, TABLET, PHONE):
        tab.page.set_viewport_size(size)  # type: ignore[arg-type]
        page = opened(tab, running, f"/ring?name={ring}")
        expect(page.locator("#more")).to_have_count(0)
        if nodes <= 60:
            expect(page.locator("#rows tr")).to_have_count(nodes)
        else:  # those that can be seen, and some
            expect(page.locator("#rows tr.space")).to_have_count(1)
        expect(page.locator(".hr-node")).to_have_count(nodes)
        assert tab.wide() == []
    assert tab.wrong == []


@pytest.mark.long
def test_of_107_rings_the_two_that_are_ill_are_seen_first_and_the_groups_without_much_way(
    client: Redis, running: Running, tab: Watched
) -> None:
    client.flushall()
    for number in range(105):
        put(
            client, "a-host-of-this-ring.internal:4711", 0, ring=f"well-{number}", told={"ttl": 900}
        )
        client.set(f"{{well-{number}}}:epoch", "1 ab")
    for name in ("ill-1", "ill-2"):
        told = {"ttl": 900, "unserved": 25}
        put(client, "a-host-of-this-ring.internal:4711", 0, ring=name, told=told)
        client.set(f"{{{name}}}:epoch", "1 ab")
    with PartitionGroup(client, "orders", partitions=6, member="m", rebalance_delay=0):
        page = opened(tab, running, "/")
        expect(page.locator("#totals")).to_contain_text("107 rings")
        expect(page.locator("#verdict")).to_contain_text(
            "2 of 108 rings and groups need attention."
        )
        expect(page.locator("#groups tr")).to_have_count(1)
        for size in (PHONE, TABLET, DESKTOP, WIDE):
            tab.page.set_viewport_size(size)  # type: ignore[arg-type]
            expect(page.locator("#rings a.node").first).to_have_text("ill-1")
            for name in ("ill-1", "ill-2"):
                link = page.locator("#verdict").get_by_role("link", name=name)
                expect(link).to_be_in_viewport()
            assert tab.wide() == []
            # Of many rings those are in the page that can be seen, so the groups are near.
            assert page.locator("#rings tr:not(.space)").count() < 107
            assert page.evaluate("document.documentElement.scrollHeight / innerHeight") < 3
    assert tab.wrong == []


def test_without_javascript_the_page_says_the_same(
    client: Redis, running: Running, browser: Browser
) -> None:
    put(client, "low", 0, ring="plain")
    put(client, "high", RING_SIZE // 2, ring="plain")
    wait_until_read(running, "plain", 2)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{running.url}/ring?name=plain")
    expect(page.locator("#rows tr")).to_have_count(2)
    expect(page.locator(".hr-node")).to_have_count(2)
    page.get_by_label("Key", exact=True).fill("hello")
    page.get_by_role("button", name="Look up").click()
    expect(page.locator("#lookup dd b")).to_have_text("low")
    row(page, "high").get_by_role("link", name="high", exact=True).click()
    expect(page.locator("#inherit")).to_contain_text("If high leaves, 1 node inherits")
    page.locator("a.home").click()
    expect(page.get_by_role("link", name="plain")).to_be_visible()
    context.close()


def test_the_table_is_sorted_and_filtered_by_keyboard_and_stays_so(
    client: Redis, running: Running, tab: Watched
) -> None:
    quarter = RING_SIZE // 4
    put(client, "a", 0, ring="table")
    put(client, "b", quarter, ring="table")
    put(client, "c", 2 * quarter, ring="table")
    page = opened(tab, running, "/ring?name=table")
    names = page.locator("#rows tr:not([hidden]) a.node")
    expect(names).to_have_text(["a", "b", "c"])
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.get_by_role("button", name="Share").focus()
    page.keyboard.press("Enter")
    expect(names).to_have_text(["c", "a", "b"])
    expect(page.locator("th[data-sort=share]")).to_have_attribute("aria-sort", "descending")
    names.nth(1).focus()
    put(client, "d", 3 * quarter // 4, ring="table")
    expect(names).to_have_text(["c", "b", "a", "d"])
    # What had the focus has it still, in its new place.
    expect(names.nth(2)).to_be_focused()
    page.get_by_label("Filter").fill("d")
    expect(names).to_have_text(["d"])
    assert tab.wrong == []


@pytest.mark.long  # The table of nodes is sorted by the same code.
def test_heirs_and_plans_are_sorted_by_what_is_clicked_and_stay_so(
    client: Redis, running: Running, tab: Watched
) -> None:
    for number, name in enumerate("abc"):  # c owns half, and after it comes a
        put(client, name, number * RING_SIZE // 4, ring="sorts")
    page = opened(tab, running, "/ring?name=sorts&node=c")
    put(client, "c", *(place * RING_SIZE // 8 for place in (4, 6, 7)), ring="sorts")
    put(client, "d", 5 * RING_SIZE // 8, ring="sorts")
    heirs = page.locator("#heirs tbody th")
    expect(heirs).to_have_text(["d", "b"])
    page.locator("#heirs").get_by_role("button", name="Node").press("Enter")
    expect(heirs).to_have_text(["b", "d"])
    expect(page.locator("#heirs th[data-sort=name]")).to_have_attribute("aria-sort", "ascending")
    # The ring changes, and the list comes anew: in the same order, with the focus where it was.
    put(client, "aa", 13 * RING_SIZE // 16, ring="sorts")
    expect(heirs).to_have_text(["aa", "b", "d"])
    expect(page.locator("#heirs").get_by_role("button", name="Node")).to_be_focused()
    page.goto(f"{running.url}/plan/ring?ring=sorts&leave=c")
    gains = page.locator("#gains tbody th")
    expect(gains.first).to_have_text("c")
    page.locator("#gains").get_by_role("button", name="Then").click()
    expect(gains.last).to_have_text("c")
    page.locator("#flows").get_by_role("button", name="To").click()
    to = page.locator("#flows tbody td:nth-child(2)")
    expect(to).to_have_text(["aa", "b", "d"])
    with PartitionGroup(client, "sorted", partitions=6, member="m", rebalance_delay=0):
        opened(tab, running, "/group?name=sorted")
        page.goto(f"{running.url}/plan/group?group=sorted&join=n")
        moves = page.locator("#moves tbody td:first-child")
        expect(moves).to_have_count(3)
        numbers = sorted(map(int, moves.all_inner_texts()), reverse=True)
        page.locator("#moves").get_by_role("button", name="Partition").dblclick()
        expect(moves).to_have_text([str(number) for number in numbers])
        assert tab.wide() == []
    assert tab.wrong == []


@pytest.mark.long  # axe finds what has no name.
def test_landmarks_tables_and_fields_have_names(
    client: Redis, running: Running, tab: Watched
) -> None:
    put(client, "a", 0, ring="names")
    page = opened(tab, running, "/ring?name=names")
    for role, name in (
        ("navigation", "Where you are"),
        ("heading", "names ring"),
        ("region", "The owner of a key"),
        ("region", "Nodes"),
        ("figure", re.compile("Hash ring")),
        ("table", re.compile("The nodes of ring names")),
        ("textbox", "Key"),
    ):
        expect(page.get_by_role(role, name=name).first).to_be_attached()  # type: ignore[arg-type]
    assert page.locator("main").count() == 1
    assert page.locator("html").get_attribute("lang") == "en"
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, input:not([type=hidden])")].filter(
        (e) => !e.closest("svg") && !(e.textContent.trim() || e.labels?.length)).length"""
    )
    assert nameless == 0


@pytest.mark.long  # Others show the same banner, and that it goes.
def test_the_page_says_that_redis_is_gone_and_when_it_is_back(
    redis_server: RedisServer, context: BrowserContext
) -> None:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        put(client, "a", 0, expires_in=900)
    with Proxy(redis_server.socket) as proxy, serving(proxy.url, "--ring", "ring") as running:
        tab = Watched(context.new_page(), running.url)
        page = opened(tab, running, "/ring?name=ring")
        expect(row(page, "a")).to_be_visible()
        proxy.refuse()
        expect(page.get_by_role("alert")).to_contain_text("Redis does not respond since")
        expect(row(page, "a")).to_be_visible()
        proxy.heal()
        expect(page.get_by_role("alert")).to_have_count(0)
        assert tab.wrong == []
        page.close()


def test_a_page_outlives_the_service_and_goes_on_with_the_next(
    redis_server: RedisServer, context: BrowserContext
) -> None:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        put(client, "a", 0, expires_in=900)
        with serving(redis_server.url, "--ring", "ring") as first:
            page = opened(Watched(context.new_page(), first.url), first, "/ring?name=ring")
        expect(page.locator("#live")).to_have_text("not connected")
        put(client, "b", 1, expires_in=900)
        with serving(redis_server.url, "--ring", "ring", "--port", str(first.port)):
            expect(page.locator("#live")).to_have_text("live")
            expect(row(page, "b")).to_be_visible()
            page.close()


def test_a_group_s_grid_shows_who_has_what(client: Redis, running: Running, tab: Watched) -> None:
    with PartitionGroup(client, "orders", partitions=6, member="m1", rebalance_delay=0):
        page = opened(tab, running, "/group?name=orders")
        expect(page.locator(".grid title").first).to_have_text("partition 0: m1")
        with PartitionGroup(client, "orders", partitions=6, member="m2", rebalance_delay=0):
            members = page.locator("#members tbody tr")
            expect(members).to_have_count(2)
            expect(page.locator(".grid title").filter(has_text="m2")).to_have_count(3)
            expect(page.locator("#head")).to_contain_text("Ready")
            expect(page.locator("#log")).to_contain_text("from m1 for m2")
            names = page.locator("#members").get_by_role("button", name="Member")
            names.click()
            expect(members.first).to_contain_text("m1")
            names.click()
            expect(members.first).to_contain_text("m2")
            page.get_by_label("Filter").fill("m1")
            expect(members).to_have_count(1)
            page.set_viewport_size(PHONE)  # type: ignore[arg-type]
            assert tab.wide() == []
    assert tab.wrong == []


def test_what_has_the_focus_in_a_row_has_it_still_when_the_row_is_new(
    client: Redis, running: Running, tab: Watched
) -> None:
    with PartitionGroup(client, "orders", partitions=6, member="m1", rebalance_delay=0):
        page = opened(tab, running, "/group?name=orders")
        expect(page.locator(".grid title").filter(has_text="m1")).to_have_count(6)
        drain = page.get_by_role("link", name="Drain m1")
        drain.focus()
        with PartitionGroup(client, "orders", partitions=6, member="m2", rebalance_delay=0):
            row_of_m1 = page.locator("#members tbody tr").filter(has=drain)
            expect(row_of_m1.locator("td").nth(1)).to_have_text("3")
            expect(drain).to_be_focused()
    put(client, "a", 0, ring="focus")
    client.set("{focus}:epoch", "1 ab")  # so that the service finds it
    page = opened(tab, running, "/")
    pin = page.get_by_role("button", name="Pin focus")
    pin.focus()
    put(client, "b", 1, ring="focus")
    expect(page.locator("#rings tr").filter(has=pin)).to_contain_text("2")
    expect(pin).to_be_focused()
    assert tab.wrong == []


def test_whoever_signs_in_can_take_a_node_off(
    client: Redis, running: Running, tab: Watched
) -> None:
    put(client, "dead", 0, ring="act", expires_in=3600)
    put(client, "well", 1, ring="act")
    page = opened(tab, running, "/ring?name=act&node=dead")
    page.get_by_role("link", name="Remove it").click()
    page.get_by_label("Your name").fill("ada")
    page.get_by_label("Token").fill("wrong" * 4)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not the token")
    expect(page.get_by_label("Your name")).to_have_value("ada")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("main")).to_contain_text("Take dead off the ring act?")
    page.get_by_role("button", name="Yes, as ada").click()
    expect(page.get_by_role("status")).to_contain_text("dead was taken off")
    expect(page.locator("footer")).to_contain_text("acting as ada")
    expect(page.locator("#log")).to_contain_text("by ada (hashring serve")
    expect(row(page, "dead")).to_have_count(0)
    page.get_by_role("button", name="sign out").click()
    expect(page.locator("footer")).to_contain_text("sign in to act")
    # The browser reports the answer to the wrong token.
    assert [line for line in tab.wrong if "401" not in line] == []


def test_a_second_click_does_not_act_again(client: Redis, running: Running, tab: Watched) -> None:
    put(client, "dead", 0, ring="twice")
    put(client, "well", 1, ring="twice")
    page = tab.page
    page.goto(f"{running.url}/act/remove?ring=twice&node=dead")
    page.get_by_label("Your name").fill("ada")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="Yes, as ada").dblclick()
    expect(page.get_by_role("status")).to_contain_text("dead was taken off")
    # A visitor who goes back may act again.
    page.go_back()
    assert page.locator("form[data-sent]").count() == 0
    page.goto(f"{running.url}/act/remove?ring=twice&node=nobody")
    expect(page.locator("main")).to_contain_text("not on ring")
    expect(page.locator("footer")).to_contain_text("acting as ada")


def test_a_ring_that_has_not_been_read_is_not_shown_as_empty(
    client: Redis, tab: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, "a", 0, ring="unread")
    looked, look = threading.Event(), RingWatcher._look

    def late(watcher: RingWatcher) -> Any:
        looked.wait()
        return look(watcher)

    monkeypatch.setattr(RingWatcher, "_look", late)
    service = Service(client, rings=["unread"])
    server = Server(create_app(service), "127.0.0.1", 0)
    server.start()
    service.start()
    try:
        tab.page.goto(f"http://127.0.0.1:{server.port}/ring?name=unread")
        expect(tab.page.locator("#verdict")).to_contain_text("it has not been read yet")
        expect(tab.page.get_by_text("No node is on the ring.")).to_be_hidden()
        looked.set()
        expect(tab.page.locator("#verdict")).to_contain_text("Everything is as it should be.")
        expect(row(tab.page, "a")).to_be_visible()
    finally:
        looked.set()
        service.stop()
        server.stop(timeout=1.0)


def test_two_services_on_one_host_have_a_session_each(
    module_redis: RedisServer, running: Running, tab: Watched
) -> None:
    page, footer = tab.page, tab.page.locator("footer")
    with serving(module_redis.url, "--allow-actions", HASHRING_TOKEN=TOKEN) as other:
        for service, name in ((running, "ada"), (other, "grace")):
            page.goto(f"{service.url}/login")
            page.get_by_label("Your name").fill(name)
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Sign in").click()
            expect(footer).to_contain_text(f"acting as {name}")
        page.goto(running.url)
        expect(footer).to_contain_text("acting as ada")
        page.get_by_role("button", name="sign out").click()
        expect(footer).to_contain_text("sign in to act")
        page.goto(other.url)
        expect(footer).to_contain_text("acting as grace")


# --- the verdict ----------------------------------------------------------------------------------


def test_the_list_begins_with_what_is_wrong_and_leads_there(
    redis: Redis, redis_server: RedisServer, context: BrowserContext
) -> None:
    for number in range(12):
        put(redis, "a", 0, ring=f"well-{number}", told={"ttl": 900})
        redis.set(f"{{well-{number}}}:epoch", "1 ab")
    put(redis, "full", 0, ring="sick", told={"ttl": 900, "unserved": 25})
    redis.set("{sick}:epoch", "1 ab")
    with serving(redis_server.url) as running:
        tab = Watched(context.new_page(), running.url)
        page = opened(tab, running, "/")
        verdict = page.locator("#verdict")
        expect(verdict).to_contain_text("1 of 13 rings needs attention.")
        expect(verdict).to_contain_text("sick: 25 keys unserved: all nodes full")
        expect(verdict.locator(".remedy")).to_have_text("add nodes or raise the limit")
        expect(page).to_have_title("▲ degraded · Rings and groups · hashring")
        expect(page.locator("#icon")).to_have_attribute("href", "/icon/degraded.svg")
        # The worst comes first, whatever its name.
        expect(page.locator("#rings a.node").first).to_have_text("sick")
        page.get_by_label("Search").fill("well-1")
        expect(page.locator("#rings tr")).to_have_count(3)
        page.get_by_label("Search").fill("no such ring")
        expect(page.locator("#nothing")).to_be_visible()
        page.get_by_label("Search").fill("")
        page.get_by_role("button", name="Pin well-7").click()
        expect(page.locator("#rings a.node").first).to_have_text("well-7")
        page.reload()
        expect(page.locator("#rings a.node").first).to_have_text("well-7")
        put(redis, "full", 0, ring="sick", told={"ttl": 900, "unserved": 0})
        expect(verdict).to_contain_text("All rings and groups are as they should be.")
        expect(page).to_have_title("Rings and groups · hashring")
        expect(page.locator("#icon")).to_have_attribute("href", "/icon/healthy.svg")
        put(redis, "full", 0, ring="sick", told={"ttl": 900, "unserved": 1})
        verdict.get_by_role("link", name="sick").click()
        expect(page.locator("#verdict")).to_contain_text("1 key unserved")
        expect(page).to_have_title("▲ degraded · sick · hashring")
        assert tab.wrong == []
        page.close()


@pytest.mark.long
def test_ages_in_the_list_are_right_though_the_browser_s_clock_is_wrong(
    redis: Redis, redis_server: RedisServer, context: BrowserContext
) -> None:
    put(redis, "a", 0, told={"ttl": 900})
    seconds, _ = redis.time()
    redis.set("{ring}:epoch", "1 ab")
    redis.xadd("{ring}:events", {"kind": "note"}, id=f"{seconds - 3 * 3600}000-0")
    with serving(redis_server.url) as running:
        page = context.new_page()
        opened(Watched(page, running.url), running, "/")
        expect(page.locator("#rings .last")).to_have_text("note 3 h ago")
        for wrong_by in (-86_400, 86_400):
            page.clock.set_system_time(seconds + wrong_by)
            opened(Watched(page, running.url), running, "/")
            expect(page.locator("#rings .last")).to_have_text("note 3 h ago")
        page.close()


SELECT = "(element) => getSelection().selectAllChildren(element)"
SELECTED = "getSelection().toString()"


@pytest.mark.long
def test_a_selection_holds_the_verdict_for_seconds_and_the_title_not_at_all(
    client: Redis, running: Running, context: BrowserContext
) -> None:
    client.set("{chosen}:epoch", "1 ab")
    put(client, "full", 0, ring="chosen", told={"ttl": 900})
    wait_until_read(running, "chosen", 1)
    page = context.new_page()
    page.clock.install()
    opened(Watched(page, running.url), running, "/ring?name=chosen")
    page.clock.pause_at(time.time() + 3600)
    page.locator("#verdict .headline").evaluate(SELECT)
    chosen = page.evaluate(SELECTED)
    assert "healthy" in chosen
    put(client, "full", 0, ring="chosen", told={"ttl": 900, "unserved": 25})
    expect(page).to_have_title("▲ degraded · chosen · hashring")
    expect(page.locator("#icon")).to_have_attribute("href", "/icon/degraded.svg")
    assert page.evaluate(SELECTED) == chosen
    page.clock.fast_forward(11_000)
    expect(page.locator("#verdict")).to_contain_text("25 keys unserved")
    page.close()


@pytest.mark.long
def test_a_selection_does_not_hold_the_banner_of_a_failure(
    redis_server: RedisServer, context: BrowserContext
) -> None:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        put(client, "a", 0, expires_in=900)
    with Proxy(redis_server.socket) as proxy, serving(proxy.url, "--ring", "ring") as running:
        page = opened(Watched(context.new_page(), running.url), running, "/ring?name=ring")
        proxy.refuse()
        page.get_by_role("alert").locator(".detail").evaluate(SELECT)
        assert page.evaluate(SELECTED)
        proxy.heal()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.locator("#live")).to_have_text("live")
        page.close()


GREEN = """() => [...document.querySelectorAll("body, body *")].filter((e) => {
    const own = getComputedStyle(e), dot = getComputedStyle(e, "::before");
    return [own.color, own.backgroundColor, own.borderLeftColor, own.fill, dot.backgroundColor]
        .some((c) => ["rgb(26, 110, 60)", "rgb(234, 246, 238)"].includes(c));
    }).map((e) => e.outerHTML.slice(0, 100))"""
"""What has the colours of states that are well."""


def test_while_redis_is_away_nothing_is_green_and_nothing_expires_in_some_time(
    redis_server: RedisServer, context: BrowserContext
) -> None:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        put(client, "a", 0, expires_in=900, told={"ttl": 900})
    with Proxy(redis_server.socket) as proxy, serving(proxy.url, "--ring", "ring") as running:
        page = opened(Watched(context.new_page(), running.url), running, "/ring?name=ring")
        expect(page.locator("#verdict")).to_contain_text("healthy")
        assert page.evaluate(GREEN) != []
        expect(row(page, "a").locator(".expires")).to_contain_text("min")
        proxy.refuse()
        expect(page.locator("#verdict")).to_contain_text("unknown")
        expect(page).to_have_title("◇ unknown · ring · hashring")
        expect(page.locator("#live")).to_have_text("no news from Redis")
        expect(row(page, "a").locator(".state")).to_have_text("unknown")
        expect(row(page, "a").locator(".state")).to_have_text("unknown")
        expect(row(page, "a").locator(".expires")).to_have_text("-")
        assert page.evaluate(GREEN) == []
        page.goto(f"{running.url}/")
        expect(page.locator("#verdict")).to_contain_text("Redis does not respond")
        expect(page.locator("#rings .badge")).to_have_text("unknown")
        assert page.evaluate(GREEN) == []
        page.close()


@pytest.mark.long
def test_a_page_whose_service_is_gone_does_not_count_down(
    redis_server: RedisServer, context: BrowserContext
) -> None:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        put(client, "a", 0, expires_in=900, told={"ttl": 900})
    with serving(redis_server.url, "--ring", "ring") as running:
        page = opened(Watched(context.new_page(), running.url), running, "/ring?name=ring")
        expect(row(page, "a").locator(".expires")).to_contain_text("min")
    expect(page.locator("#live")).to_have_text("not connected")
    expect(row(page, "a").locator(".expires")).to_have_text("-")
    page.close()


def test_a_page_that_hears_nothing_for_long_is_not_live_and_connects_again(
    redis: Redis, redis_server: RedisServer, context: BrowserContext
) -> None:
    put(redis, "a", 0, expires_in=9000, told={"ttl": 9000})
    page = context.new_page()
    page.clock.install()
    with (
        serving(redis_server.url, "--ring", "ring") as running,
        Proxy(("127.0.0.1", running.port)) as proxy,
    ):
        page.goto(f"http://127.0.0.1:{proxy.port}/ring?name=ring")
        expect(page.locator("#live")).to_have_text("live")
        proxy.black_hole()
        page.clock.fast_forward(42_000)
        expect(page.locator("#live")).to_have_text("not connected")
        assert page.evaluate(GREEN) == []
        expect(row(page, "a").locator(".expires")).to_have_text("-")
        put(redis, "b", 1, expires_in=9000, told={"ttl": 9000})
        proxy.heal(old=False)
        page.clock.fast_forward(42_000)
        expect(page.locator("#live")).to_have_text("live")
        expect(row(page, "b")).to_be_visible()
        page.close()


def test_the_list_of_servers_is_not_live_while_its_service_does_not_answer(
    client: Redis, module_redis: RedisServer, redis_server: RedisServer, context: BrowserContext
) -> None:
    client.flushall()
    put(client, "a", 0, ring="quiet", expires_in=9000, told={"ttl": 9000})
    urls = (f"one={module_redis.url}", "--url", f"two={redis_server.url}")
    page = context.new_page()
    page.clock.install()
    away = re.compile("away")
    with (
        serving(*urls, "--ring", "quiet") as running,
        Proxy(("127.0.0.1", running.port)) as proxy,
    ):
        page.goto(f"http://127.0.0.1:{proxy.port}/")
        proxy.black_hole()
        page.clock.run_for(21_000)
        expect(page.locator("body")).to_have_class(away)
        assert page.evaluate(GREEN) == []
        proxy.heal(old=False)
        page.clock.run_for(21_000)
        expect(page.locator("body")).not_to_have_class(away)
        page.close()


@pytest.mark.long
def test_a_page_on_which_nothing_changes_stays_connected(
    visit: Visit, redis: Redis, context: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent_events, "KEEPALIVE", 0.05)
    put(redis, "a", 0, expires_in=9000, told={"ttl": 9000})
    server = Server(visit(["ring"]).app, "127.0.0.1", 0)
    server.start()
    try:
        page = context.new_page()
        feeds: list[str] = []
        page.on("request", lambda request: feeds.append(request.url))
        page.clock.install()
        page.goto(f"http://127.0.0.1:{server.port}/ring?name=ring")
        expect(page.locator("#live")).to_have_text("live")
        for _ in range(3):
            page.clock.fast_forward(30_000)
            page.evaluate("new Promise((done) => source.addEventListener('alive', done))")
        assert len([url for url in feeds if "/feed" in url]) == 1
        page.close()
    finally:
        server.stop(PATIENCE)


def test_a_page_waits_longer_for_a_first_message_that_did_not_come_in_time(
    visit: Visit, redis: Redis, context: BrowserContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(redis, "a", 0, expires_in=9000, told={"ttl": 9000})
    comes, chunks_of = threading.Event(), server_sent_events.Feed._follow

    def slow(feed: server_sent_events.Feed, since: str, at: float) -> Iterator[Any]:
        chunks = chunks_of(feed, since, at)
        yield next(chunks)
        comes.wait(PATIENCE)
        yield from chunks

    monkeypatch.setattr(server_sent_events.Feed, "_follow", slow)
    server = Server(visit(["ring"]).app, "127.0.0.1", 0)
    server.start()
    try:
        page = context.new_page()
        feeds: list[str] = []
        page.on("request", lambda request: feeds.append(request.url))
        page.clock.install()
        page.goto(f"http://127.0.0.1:{server.port}/ring?name=ring")
        expect(page.locator("#live")).to_have_text("live")
        for _ in range(2):
            page.clock.fast_forward(42_000)
            page.evaluate(
                "source.readyState || new Promise((done) => source.addEventListener('open', done))"
            )
        assert len([url for url in feeds if "/feed" in url]) == 2
        put(redis, "b", 1, expires_in=9000, told={"ttl": 9000})
        comes.set()
        expect(row(page, "b")).to_be_visible()
        page.close()
    finally:
        comes.set()
        server.stop(PATIENCE)


def test_a_thousand_nodes_are_a_small_page_and_few_rows_at_a_time(
    client: Redis, running: Running, tab: Watched
) -> None:
    for number in range(1000):
        points = [(number * 16 + k) * 2_654_435_761 % RING_SIZE for k in range(16)]
        put(client, f"node-{number:04}", *points, ring="thousand", told={"ttl": 900})
    wait_until_read(running, "thousand", 1000)
    answer = urlopen(f"{running.url}/ring?name=thousand", timeout=PATIENCE)
    assert len(answer.read()) < 150_000
    page = opened(tab, running, "/ring?name=thousand")
    expect(page.locator("#more")).to_have_count(0)
    # The rest of the rows came by the stream, and none of them is shown as one that joined.
    assert page.locator("#rows tr.fresh").count() == 0
    expect(page.locator("#news")).to_be_empty()
    assert page.locator("#rows tr").count() < 200
    expect(row(page, "node-0999")).to_have_count(0)
    page.locator(".scroll.tall").evaluate("(box) => box.scrollTo(0, box.scrollHeight)")
    expect(row(page, "node-0999")).to_be_visible()
    page.get_by_label("Filter").fill("0500")
    expect(page.locator("#rows tr")).to_have_count(1)
    page.get_by_label("Filter").fill("no such node")
    expect(page.locator("#nothing")).to_be_visible()
    assert tab.wide() == []
    assert tab.wrong == []


def test_a_tab_in_the_background_leaves_its_connection_to_others(
    client: Redis, running: Running, context: BrowserContext
) -> None:
    put(client, "a", 0, ring="tabs", told={"ttl": 900})
    pages = [context.new_page() for _ in range(8)]
    for page in pages:
        page.goto(f"{running.url}/ring?name=tabs")
        expect(page.locator("#live")).to_have_text("live")
        # What a browser does to a tab that another one covers.
        page.evaluate(
            """() => {
            Object.defineProperty(document, "hidden", {get: () => window.covered, set: undefined});
            window.covered = true;
            document.dispatchEvent(new Event("visibilitychange"));
        }"""
        )
    put(client, "b", 1, ring="tabs", told={"ttl": 900})
    pages[0].evaluate(
        "() => {window.covered = false; document.dispatchEvent(new Event('visibilitychange'))}"
    )
    expect(row(pages[0], "b")).to_be_visible()
    for page in pages:
        page.close()


AXE_PAGES = (
    "/",
    "/ring?name=axe",
    "/ring?name=axe&node=well&key=hello",
    "/group?name=axes",
    "/plan/ring?ring=axe&leave=well&join=x",
    "/plan/group?group=axes&join=x",
    "/login",
    # Of the same parts as those before.
    "/nothing",
    "/act/remove?ring=axe&node=dead",
    "/act/drain?ring=axe&node=well",
    "/act/weight?ring=axe&node=well&weight=2",
    "/act/group-weight?group=axes&member=m&weight=2",
    "/act/rebalance?group=axes",
)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_axe_finds_nothing(client: Redis, running: Running, browser: Browser, scheme: Any) -> None:
    put(client, "well", 0, ring="axe", told={"ttl": 900, "held": 3, "limit": 5, "unserved": 2})
    put(client, "late", 7, ring="axe", expires_in=60, told={"ttl": 900})
    put(client, "dead", 7, ring="axe", expires_in=-60)
    # In other colours it is the same page, and one question about an act is as another.
    again = scheme == "dark" and not LONG
    rules = {"runOnly": ["color-contrast"]} if again else None
    end = (
        None if LONG else AXE_PAGES.index("/nothing" if again else "/act/drain?ring=axe&node=well")
    )
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    with PartitionGroup(client, "axes", partitions=6, member="m", rebalance_delay=0):
        for path in AXE_PAGES[:end]:
            page.goto(running.url + path)
            if "/act/" in path and "/login" in page.url:
                page.get_by_label("Your name").fill("ada")
                page.get_by_label("Token").fill(TOKEN)
                page.get_by_role("button", name="Sign in").click()
                page.wait_for_url(f"**{path}")
            found = Axe().run(page, options=rules).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], path
    context.close()


def test_the_list_of_servers_is_renewed_in_the_order_that_was_asked_for(
    client: Redis, module_redis: RedisServer, redis_server: RedisServer, context: BrowserContext
) -> None:
    client.flushall()
    put(client, "a", 0, ring="shared", told={"ttl": 900})
    client.set("{shared}:epoch", "1 ab")
    urls = (f"one={module_redis.url}", "--url", f"two={redis_server.url}")
    page = context.new_page()
    page.clock.install()
    with serving(*urls, "--ring", "shared") as running:
        page.goto(f"{running.url}/")
        names = page.locator("#servers tbody th")
        page.get_by_role("button", name="Server").dblclick()
        expect(names).to_have_text(["two", "one"])
        assert Axe().run(page).response["violations"] == []
        put(client, "a", 0, ring="shared", told={"ttl": 900, "unserved": 25})

        def renewed(expected: str) -> bool:
            page.clock.run_for(10_000)
            return expected in page.locator("#servers").inner_text()

        eventually(lambda: renewed("25 keys unserved"), "the table is renewed")
        expect(names).to_have_text(["two", "one"])
        expect(page).to_have_title(re.compile("degraded"))
    eventually(
        lambda: renewed("") and "away" in page.evaluate("document.body.className"), "it is old"
    )
    assert page.evaluate(GREEN) == []
    page.close()


@pytest.mark.long
def test_a_report_of_the_pipeline_fits_a_phone(context: BrowserContext, tmp_path: Path) -> None:
    names = [f"a-long-name-of-a-host-{n}.example.org:4711" for n in range(3)]
    report = Report("Load of the ring")
    report.facts([("work begun by the owner and gone on with after losing the key", 1)])
    report.facts([("report", "/a/path/without/a/space/" * 4)])
    report.ring(Ring({name: [n << 30] for n, name in enumerate(names)}))
    report.bars("Share", [(name, 0.3, 0.3) for name in names])
    report.flows("Moves", [(names[0], names[1], 5.0), (names[2], names[1], 7.0)], names)
    report.lines("Peaks", [(names[0], [(4, 1.5, 2.0), (8, 1.2, 1.4)])], "replicas", "peak")
    report.table([f"column {n}" for n in range(12)], [["a word"] * 12])
    path = tmp_path / "report.html"
    path.write_text(report.html(), encoding="utf-8")
    page = context.new_page()
    page.goto(path.as_uri())
    for window in (PHONE, DESKTOP):
        page.set_viewport_size(window)  # type: ignore[arg-type]
        assert page.evaluate("document.documentElement.scrollWidth") <= window["width"]
        # Text in a plot is readable: its 12 pixels are at least 8.
        scale = "Math.min(...[...document.querySelectorAll('svg')].map((e) => e.getScreenCTM().a))"
        assert page.evaluate(scale) >= 8 / 12
