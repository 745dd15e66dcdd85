"""The commands that measure real servers run to their end, with little to measure: figures are not judged."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.processes.cluster import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        ("growing", ("--znodes", "1000"), "server 3 is taken in"),
        ("many_sessions", ("--sessions", "60", "--storm", "12", "--watches", "12"), "12 watches fire"),
        ("sustained", ("--minutes", "0.05", "--sessions", "3", "--under-way", "2"), "0 failed; 0 elections"),
        ("starting", ("--znodes", "1000", "--times", "1"), "a start with all of it in the snapshot"),
        ("million", ("--znodes", "2000", "--partitions", "2"), "after the death of all servers"),
    ],
)
def test_a_measurement_with_little_to_measure_runs_to_its_end(
    module: str, options: tuple[str, ...], said: str
) -> None:
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "client", ROOT / "bench")))
    done = subprocess.run(
        [sys.executable, "-m", f"tests.processes.{module}", *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    assert "Traceback" not in done.stderr
