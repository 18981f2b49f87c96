"""What is offered for deployment names nothing that does not exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from hashring.cli import main
from hashring.cli.serve import TOKEN_VARIABLE
from hashring.cli.serve import command as serve
from hashring.core.groups.group_status import WaitKind
from hashring.core.groups.state import EventKind, GroupPhase
from hashring.core.order_checks import SHORTEST_TOKEN
from hashring.core.ring_change_message import REASONS, ChangeKind
from hashring.health import State
from hashring.metrics.metric_families import FLEET_METRICS, PROCESS_METRICS, Spec
from hashring.protocol.node.node_states import NodeState
from hashring.web.server_sent_events import MOST_STREAMS
from hashring.web.waitress_server import CONNECTIONS, OTHER_FILES, REQUESTS
from hashring.web.watchers_by_name import MOST
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"
# A service of several Redis servers adds theirs to each of its metrics.
SERVED = tuple(spec._replace(labels=(*spec.labels, "server")) for spec in FLEET_METRICS)
SPECS: dict[str, Spec] = {
    spec.name + suffix: spec
    for spec in (*SERVED, *PROCESS_METRICS)
    for suffix in {
        "gauge": [""],
        "counter": ["_total"],
        "histogram": ["_bucket", "_sum", "_count"],
    }[spec.kind]
}
CAUSES = {*REASONS, *(kind.value for kind in ChangeKind)}
# What the labels of few values may be.
VALUES: dict[tuple[str, str], set[str]] = {
    ("hashring_ring_nodes", "state"): {"live", "expired"},
    ("hashring_ring_state", "state"): {state.value for state in State},
    ("hashring_group_state", "state"): {state.value for state in State},
    ("hashring_node_state", "state"): {state.value for state in NodeState},
    ("hashring_ring_changes_total", "reason"): CAUSES,
    ("hashring_node_changes_total", "reason"): CAUSES,
    ("hashring_group_phase", "phase"): {phase.value.lower() for phase in GroupPhase},
    ("hashring_group_waits", "reason"): {kind.value for kind in WaitKind},
    ("hashring_group_events_total", "kind"): {kind.value for kind in EventKind},
}
NAME = re.compile(r"\b(hashring_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')


def problems(expression: str) -> Iterator[str]:
    """What the expression names that no collector exports."""
    known: set[str] = {"le"}
    found = NAME.findall(expression)
    if not found:
        yield f"names no metric: {expression}"
    for name, matchers in found:
        spec = SPECS.get(name)
        if spec is None:
            yield f"no metric {name}"
            continue
        known |= set(spec.labels)
        for label, value in MATCHER.findall(matchers):
            if label not in spec.labels:
                yield f"{name} has no label {label}"
            if value.startswith("$"):
                continue
            for word in value.split("|"):
                if word not in VALUES.get((name, label), {word}):
                    yield f"{name} has no {label} {word}"
    for labels in re.findall(r"\b(?:by|without|on)\s*\(([^)]*)\)", expression):
        for label in re.split(r"\s*,\s*", labels.strip()):
            if label not in known:
                yield f"no label {label} in: {expression}"


def dashboard() -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana" / "hashring.json").read_text())  # type: ignore[no-any-return]


def rules() -> list[dict[str, Any]]:
    text = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


@pytest.mark.parametrize(
    "expression",
    [
        "hashring_ring_nodez",
        'hashring_ring_nodes{stat="live"}',
        'hashring_ring_nodes{state="alive"}',
        'hashring_node_state{state=~"failed|gone"}',
        "sum by (node) (hashring_ring_epoch)",
        "hashring_ring_changes",
        "up == 0",
    ],
)
def test_what_does_not_exist_is_found(expression: str) -> None:
    assert list(problems(expression))


def test_the_dashboard_names_what_is_exported() -> None:
    shown = [
        (panel, target) for panel in dashboard()["panels"] for target in panel.get("targets", ())
    ]
    assert shown
    for panel, target in shown:
        assert list(problems(target["expr"])) == [], panel["title"]
        known = {label for name, _ in NAME.findall(target["expr"]) for label in SPECS[name].labels}
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= known, panel["title"]


def test_the_dashboards_variables_name_what_is_exported() -> None:
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((\w+)(\{.*\})?, (\w+)\)", variable["definition"])
            assert asked is not None
            name, _, label = asked.groups()
            assert list(problems(variable["definition"])) == []
            assert label in SPECS[name].labels


def test_the_dashboards_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])


def test_alerts_name_what_is_exported() -> None:
    found = rules()
    assert found
    assert len({rule["alert"] for rule in found}) == len(found)
    for rule in found:
        assert list(problems(rule["expr"])) == [], rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]


def test_alerts_tell_labels_that_their_metrics_have() -> None:
    for rule in rules():
        names = [SPECS[name] for name, _ in NAME.findall(rule["expr"])]
        known = {label for spec in names for label in spec.labels}
        outer = re.match(r"\s*(?:max|sum) by \(([^)]*)\)", rule["expr"])
        if outer:
            known &= set(re.split(r"\s*,\s*", outer[1]))
        told = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", told)) <= known, rule["alert"]


def test_every_metric_is_documented_and_no_other() -> None:
    text = (ROOT / "docs" / "reference" / "metrics.rst").read_text()
    exported = {
        spec.name + ("_total" if spec.kind == "counter" else "")
        for spec in (*FLEET_METRICS, *PROCESS_METRICS)
    }
    assert set(re.findall(r"``(hashring_\w*[a-z])``", text)) == exported


def test_both_kinds_of_metrics_have_names_of_their_own() -> None:
    names = [spec.name for spec in (*FLEET_METRICS, *PROCESS_METRICS)]
    assert len(names) == len(set(names))


# --- the service as a unit and as a manifest ------------------------------------------------------


def unit() -> ConfigParser:
    config = ConfigParser(strict=False, delimiters=("=",), interpolation=None)
    config.optionxform = str  # type: ignore[assignment,method-assign]
    config.read(DEPLOY / "systemd" / "hashring.service")
    return config


def manifest() -> dict[str, dict[str, Any]]:
    text = (DEPLOY / "kubernetes" / "hashring.yaml").read_text()
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    assert set(unit()) == {"DEFAULT", "Unit", "Service", "Install"}
    analyze = shutil.which("systemd-analyze")
    if analyze:
        text = (DEPLOY / "systemd" / "hashring.service").read_text()
        text = text.replace("/opt/hashring/bin/hashring", "/bin/true")
        copy = tmp_path / "hashring.service"
        copy.write_text(re.sub(r"(?m)^EnvironmentFile=.*$", "", text))
        done = subprocess.run(
            [analyze, "verify", copy], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_unit_allows_as_many_files_and_threads_as_the_server_may_need() -> None:
    service = unit()["Service"]
    assert int(service["LimitNOFILE"]) >= CONNECTIONS + OTHER_FILES
    assert int(service["TasksMax"]) >= MOST_STREAMS + REQUESTS + MOST + 10


def test_the_manifests_parts_belong_together() -> None:
    parts = manifest()
    assert set(parts) == {"Deployment", "Service", "NetworkPolicy"}
    pod = parts["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    [container] = pod["spec"]["containers"]
    [port] = container["ports"]
    assert parts["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert parts["Service"]["spec"]["selector"] == labels
    assert parts["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert parts["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    arguments = container["args"]
    assert arguments[arguments.index("--port") + 1] == str(port["containerPort"])
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])


def test_a_pod_has_visitors_also_while_redis_is_away() -> None:
    [container] = manifest()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/healthz"


def test_what_they_start_is_a_command_with_options_that_exist() -> None:
    words = unit()["Service"]["ExecStart"].split()
    assert words[:2] == ["/opt/hashring/bin/hashring", "serve"]
    [container] = manifest()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "serve"
    for arguments in (words[2:], container["args"][1:]):
        context = serve.make_context(
            "serve", list(arguments), parent=click.Context(main, **main.context_settings)
        )
        assert context.params["port"] == 8765


def test_their_environment_is_what_the_command_reads() -> None:
    text = (DEPLOY / "systemd" / "hashring.env").read_text()
    names = set(re.findall(r"(?m)^#?([A-Z_]+)=", text))
    assert names == {"HASHRING_REDIS_URL", TOKEN_VARIABLE}
    assert {option.envvar for option in main.params} >= {"HASHRING_REDIS_URL"}


def test_the_length_of_a_token_that_they_name_is_what_the_command_asks_for() -> None:
    text = (DEPLOY / "systemd" / "hashring.env").read_text()
    assert re.findall(r"(\d+) characters or more", text) == [str(SHORTEST_TOKEN)]


def test_the_image_installs_extras_that_exist() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    for file in ("kubernetes/Dockerfile", "systemd/hashring.service"):
        [extras] = re.findall(r"hashring-fleet\[([\w,]+)\]", (DEPLOY / file).read_text())
        assert set(extras.split(",")) <= set(config["options.extras_require"])
