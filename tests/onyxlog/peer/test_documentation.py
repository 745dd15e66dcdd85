"""The programs of docs/explanation/onyxlog.md, "From Python", run; its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onyxlog.main import main
from onyxlog.peer.fleet import Fleet
from onyxlog.peer.idle_runner import run_nothing
from onyxlog.peer.log import native as native_log
from tests.onyxlog.simulation.memory_log import MemoryLog

DOCUMENT = (Path(__file__).parents[3] / "docs" / "explanation" / "onyxlog.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return DOCUMENT.partition(f"\n{title}\n")[2].partition("\n## ")[0]


def test_the_program_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", section("## Running peers"), re.DOTALL)
    log = MemoryLog()
    monkeypatch.setattr(native_log, "native_ports", lambda *_: log.opened)
    scope: dict[str, Any] = {"__name__": "program"}
    exec(compile(program, "docs/explanation/onyxlog.md", "exec"), scope)
    assert "SubmitJob" in capsys.readouterr().out
    assert not log.ports, "everything is closed"
    assert log.first > 0


def test_every_metric_is_in_the_table_and_every_one_in_the_table_exists() -> None:
    table = section("### Metrics").partition("\n### ")[0]
    documented = set()
    for cell in re.findall(r"^\| (.*?) \|", table, re.MULTILINE):
        for name in re.findall(r"`(.+?)`", cell):
            name = name.partition("{")[0].removesuffix("_total")
            if name.startswith("…"):
                name = f"onyxlog_zookeeper{name[1:]}"
            documented.add(name)
    fleet = Fleet(MemoryLog().opened, run_nothing)
    known = {family.name for family in fleet.metrics.registry.collect()}
    assert documented == known


def test_the_options_in_the_table_exist() -> None:
    table = section("### The command")
    options = set(re.findall(r"`(--[a-z-]+)`", table))
    assert len(options) > 15
    shown = "".join(
        CliRunner().invoke(main, [command, "--help"]).output for command in ("peer", "submit-job", "status")
    )
    assert {option for option in options if option not in shown} <= {"--help"}
