"""The dashboard of Grafana: Prometheus understands its expressions, and on living servers each of them shows something."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from tests.processes.clients import Sessions
from tests.processes.cluster import ROOT, wait_until
from tests.processes.conftest import StartCluster, start_cluster
from tests.processes.prometheus import ScrapedCluster, command, scraped, watch
from tests.prometheus_tools import RULES, find_tool
from tests.promql import complaints, metrics_in
from zraft.cli.main import main

__all__ = ["start_cluster"]

DASHBOARD: Final = ROOT / "deploy" / "grafana" / "zraft.json"
INSTEAD: Final = {"$job": "zraft", "$instance": ".*", "$__rate_interval": "5s"}
"""The values that Grafana puts in the place of variables."""

ELSEWHERE: Final = {
    "zraft_tls_certificate_not_after_seconds": "servers with TLS",
    "zraft_tls_reloads_failed_total": "servers with TLS",
    "zraft_audit_lines_dropped_total": "servers with an audit log",
}
"""Metrics in alert rules that these servers do not have, and which do."""


def dashboard() -> dict[str, Any]:
    found = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def expressions() -> dict[str, str]:
    """By panel and letter."""
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    }


def filled_in(expression: str) -> str:
    for variable, value in INSTEAD.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression, f"{expression}: the test knows no such variable"
    return expression


def alert_expressions() -> dict[str, str]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{n}", "expr": filled_in(one)} for n, one in enumerate(expressions().values())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [find_tool("promtool"), "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_panels_have_their_own_places_and_say_what_they_show() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {"Overview", "Latency", "Raft", "Log and disk", "Sessions and clients", "Topics", "Process"} == {
        panel["title"] for panel in panels if panel["type"] == "row"
    }
    places: list[tuple[int, int]] = []
    for panel in panels:
        place = panel["gridPos"]
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        assert columns.stop <= 24
        places += itertools.product(columns, rows)
        if panel["type"] != "row":
            assert panel["description"].endswith(".")
            letters = [target["refId"] for target in panel["targets"]]
            assert len(set(letters)) == len(letters)
            for one in (panel, *panel["targets"]):
                assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert len(set(places)) == len(places)
    assert [one["name"] for one in dashboard()["templating"]["list"]] == ["datasource", "job", "instance"]


def exposed_by(cluster: ScrapedCluster) -> dict[str, dict[str, set[str]]]:
    """The values of each label of each metric in what all servers answer to Prometheus."""
    found: dict[str, dict[str, set[str]]] = {}
    for number in cluster.servers:
        with urllib.request.urlopen(f"http://{cluster.admin(number)}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = found.setdefault(sample.name, defaultdict(set))
                for name, value in sample.labels.items():
                    labels[name].add(value)
    return found


@pytest.mark.processes
@pytest.mark.timeout(180)
def test_living_servers_expose_what_panels_and_alerts_ask_for_and_every_panel_shows_something(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = scraped(start_cluster)
    command(cluster, "topic", "create", "orders", "--partitions", "3")
    sessions = Sessions(cluster)
    client = sessions.open()
    records = tmp_path / "records"
    records.write_text("one\ntwo\n")
    for words in (
        ("topic", "produce", "orders", str(records)),
        ("consumer", "reset", "billing", "--topic", "orders", "--to", "earliest"),
    ):
        done = CliRunner().invoke(main, [*words, "--connect", cluster.hosts()])
        assert done.exit_code == 0, done.output
    exposed = exposed_by(cluster)
    assert {title: wrong for title, one in expressions().items() if (wrong := complaints(one, exposed))} == {}
    asked = {name for one in alert_expressions().values() for name in metrics_in(one)} - {"up"}
    assert asked - exposed.keys() == ELSEWHERE.keys()
    with watch(cluster) as prometheus:
        numbers = itertools.count()

        def empty() -> list[str]:
            client.create(f"/{next(numbers)}", b"")
            # What is filtered by a comparison shows nothing as long as all is well.
            return [
                title
                for title, one in expressions().items()
                if not prometheus.answers(filled_in(re.sub(r" > 0$", "", one)))
            ]

        wait_until(lambda: not empty(), "every panel to show something")
    sessions.close()
