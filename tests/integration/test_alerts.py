"""The alerts fire as they should, and each panel of the dashboard shows data of a real fleet."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from redis import Redis

import hashring.metrics
from hashring import PartitionGroup, RingNode
from hashring.store.embedded_server import RedisServer
from tests.conftest import PATIENCE, ROOT, eventually
from tests.web.conftest import serving

pytestmark = pytest.mark.one_server

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
TESTS = Path(__file__).with_name("alerts.test.yml")
DASHBOARD = ROOT / "deploy" / "grafana" / "hashring.json"


def program(name: str) -> str:
    """A program of Prometheus that scripts/prometheus fetched, or that the machine has."""
    fetched = ROOT / ".servers" / "bin" / name
    found = str(fetched) if fetched.exists() else shutil.which(name)
    if found is None:
        pytest.fail(f"there is no {name}: scripts/prometheus fetches it, or says why it cannot")
    return found


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_are_ones_that_prometheus_takes() -> None:
    promtool("check", "rules", str(ALERTS))


def test_each_cause_fires_one_alert_and_no_other(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    shutil.copy(TESTS, tmp_path / "alerts.test.yml")
    promtool("test", "rules", str(tmp_path / "alerts.test.yml"))


def is_ready(address: str) -> bool:
    try:
        with urlopen(f"{address}/-/ready", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except HTTPError:
        return False


@contextmanager
def prometheus(directory: Path, *targets: str) -> Iterator[str]:
    """A real Prometheus that scrapes the targets each second; its address."""
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {"job_name": "hashring", "static_configs": [{"targets": list(targets)}]}
        ],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config))
    process = subprocess.Popen(
        [
            program("prometheus"),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            "--web.listen-address=127.0.0.1:0",
        ],
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            found = re.search(r"Listening on.*address=(127\.0\.0\.1:\d+)", line)
            if found:
                address = f"http://{found[1]}"
                eventually(partial(is_ready, address), "prometheus is ready")
                yield address
                break
        else:
            pytest.fail("prometheus ended without listening")
    finally:
        process.kill()
        process.communicate()


@contextmanager
def exporting(registry: CollectorRegistry) -> Iterator[int]:
    """The port at which a process exports its metrics."""
    server, thread = start_http_server(0, "127.0.0.1", registry=registry)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def asked(address: str, query: str) -> list[Any]:
    with urlopen(f"{address}/api/v1/query?{urlencode({'query': query})}", timeout=PATIENCE) as got:
        return list(json.load(got)["data"]["result"])


def panels() -> list[tuple[str, str]]:
    """Each panel's title, with an expression of its for all rings and groups."""
    found = []
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = re.sub(r"\$(server|ring|group|node|member)\b", ".*", target["expr"])
            expression = expression.replace("$__rate_interval", "1m").replace("$__range", "1m")
            # Some panels show only what is not zero, which in a healthy fleet is nothing.
            expression = re.sub(r" (> 0|== 1)$", "", expression)
            found.append((panel["title"], re.sub(r'="\.\*"', '=~".*"', expression)))
    return found


def test_every_panel_of_the_dashboard_has_data_of_a_real_fleet(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    registry = CollectorRegistry()
    with (
        exporting(registry) as own,
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        RingNode(client, "ring", name="a", lock=True, limit=2, heartbeat_interval=0.5) as first,
        RingNode(client, "ring", name="b", lock=True, limit=2, heartbeat_interval=0.5),
        PartitionGroup(client, "orders", partitions=8, member="m", rebalance_delay=0) as member,
        serving(redis_server.url) as running,
        prometheus(tmp_path, f"127.0.0.1:{running.port}", f"127.0.0.1:{own}") as at,
    ):
        hashring.metrics.register(first, registry)
        hashring.metrics.register(member, registry)
        for key in ("k1", "k2", "k3", "k4"):
            first.contains(key)
        missing = panels()
        assert missing

        def all_have_data() -> bool:
            missing[:] = [panel for panel in missing if not asked(at, panel[1])]
            return not missing

        try:
            eventually(all_have_data, "every panel has data")
        except BaseException:
            print(*missing, sep="\n")
            raise
        assert asked(at, 'ALERTS{severity="critical"}') == []
