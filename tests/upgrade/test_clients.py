"""Clients and servers of neighbouring releases work together, whichever is the older one."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.packaging.modules import REPOSITORY
from tests.processes.cluster import wait_until
from tests.upgrade.golden import path_of
from tests.upgrade.releases import OLD_LEVEL, MixedCluster
from tests.upgrade.test_mixed import StartCluster
from zraft.config.features import FEATURE_LEVEL_MAX

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("program.py")


@pytest.mark.parametrize("older", ["client", "server"])
def test_a_program_works_with_the_neighbouring_release(
    start_cluster: StartCluster, last_release: Path, older: str
) -> None:
    old = (1,) if older == "server" else ()
    cluster = start_cluster(servers=1, kind=partial(MixedCluster, release=last_release, old=old))
    level = OLD_LEVEL if old else FEATURE_LEVEL_MAX
    wait_until(lambda: cluster.level() == level, f"feature level {level}")
    answer = subprocess.run(
        [sys.executable, str(PROGRAM), cluster.hosts()],
        cwd=cluster.directory,
        env=os.environ | {"PYTHONPATH": path_of(last_release if older == "client" else REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stdout) == (0, "done\n"), answer.stderr
