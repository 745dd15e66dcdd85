"""The alert rules: their metrics and labels are those that servers expose, and each is tested and documented."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve

from tests.prometheus_tools import ROOT, RULES, find_tool
from tests.promql import complaints
from tests.unit.admin.values import STATUS
from zraft.admin.metrics import OF_ZOOKEEPER, OURS, families
from zraft.transport.sealing import Rejection

TESTS: Final = ROOT / "tests" / "alerts" / "rules.yml"


def rules() -> dict[str, str]:
    """The expression of each alert."""
    text = RULES.read_text(encoding="utf-8")
    found = re.findall(r"^      - alert: (\w+)\n        expr: (\S.+)$", text, re.MULTILINE)
    assert len(found) == len(re.findall(r"\balert:", text)), (
        "an expression does not stand on the line of its own"
    )
    return dict(found)


def exposed() -> dict[str, dict[str, set[str]]]:
    """The values of each label of each metric that a server may expose."""
    assert STATUS.peers is not None
    refused = {one.value: 0 for one in Rejection}
    status = evolve(STATUS, peers=evolve(STATUS.peers, refused=refused))
    found: dict[str, dict[str, set[str]]] = {}
    for family in families(status):
        for sample in family.samples:
            labels = found.setdefault(sample.name, defaultdict(set))
            for name, value in sample.labels.items():
                labels[name].add(value)
    for metric in (*OF_ZOOKEEPER, *OURS):
        if metric.kind in {"gauge", "counter"}:
            found.setdefault(metric.name, {})
    return found


@pytest.mark.parametrize(("alert", "expression"), rules().items())
def test_every_metric_and_label_of_an_alert_is_exposed(alert: str, expression: str) -> None:
    assert complaints(expression, exposed()) == [], alert


def test_a_metric_or_label_that_was_renamed_is_noticed() -> None:
    assert complaints("zraft_raedy == 0", exposed()) == ["zraft_raedy"]
    assert complaints('rate(zraft_peer_datagrams_refused_total{reason="unknown"}[5m]) > 0', exposed()) == [
        "zraft_peer_datagrams_refused_total{reason='unknown'}"
    ]
    assert complaints('sum by (job) (zraft_raft_role{role="master"}) == 0', exposed()) == [
        "zraft_raft_role{role='master'}"
    ]
    assert complaints("max by (job, sever) (zraft_raft_follower_silent_seconds) > 10", exposed()) == [
        "by (sever)"
    ]


def test_every_alert_is_tested_and_documented_and_no_other() -> None:
    alerts = set(rules())
    tested = set(
        re.findall(r"""alertname="(\w+)", ?|alertname="(\w+)"}""", TESTS.read_text(encoding="utf-8"))
    )
    assert {one or other for one, other in tested} == alerts
    document = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^#+ (Zraft\w+)$", document, re.MULTILINE)) == alerts
    anchors = re.findall(
        r"runbook: docs/how-to/operations\.md#(\w+)$", RULES.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert anchors == [alert.lower() for alert in rules()]


def test_the_fault_of_every_alert_is_caused_on_real_servers() -> None:
    causing = "".join(one.read_text() for one in (ROOT / "tests" / "processes").glob("test_alerts*.py"))
    assert set(re.findall(r'"(Zraft\w+)"', causing)) == set(rules())


def test_promtool_finds_the_rules_right_and_they_fire_when_they_should(tmp_path: Path) -> None:
    """What `.ci/run` does, too."""
    promtool = find_tool("promtool")
    for arguments in (
        ("check", "rules", RULES),
        ("check", "config", RULES.with_name("prometheus.yml")),
        ("test", "rules", TESTS),
    ):
        done = subprocess.run(
            [promtool, *map(str, arguments)], capture_output=True, text=True, timeout=50, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
