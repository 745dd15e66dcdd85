"""The programs in examples/ that use clients in Java and JavaScript do what they say on real servers, and do it again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.compat.install import node_modules, program
from tests.compat.test_clients import or_skip
from tests.processes.cluster import ROOT, Cluster

pytestmark = [pytest.mark.compat, pytest.mark.processes, pytest.mark.timeout(300)]

EXAMPLES: Final = ROOT / "examples"
JAR: Final = Path("/usr/share/java/zookeeper.jar")
QUICKER: Final = "somebody else was quicker: read again"


def output(command: Sequence[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | environment, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_example_in_java_works_twice(cluster: Cluster) -> None:
    or_skip(lambda: program("javac", "default-jdk-headless"))
    if not JAR.exists():
        pytest.skip(f"no {JAR}: apt-get install libzookeeper-java")
    for before in ("", "an earlier run has made it\n"):
        found = output(
            ["java", "-Xmx128m", "-cp", str(JAR), str(EXAMPLES / "java" / "Settings.java"), cluster.hosts()],
            {},
        )
        assert found == f"{before}changed to blue\n{QUICKER}\n"


def test_the_example_in_javascript_works_twice(cluster: Cluster) -> None:
    node = or_skip(lambda: program("node", "nodejs"))
    modules = or_skip(node_modules)
    for _ in range(2):
        found = output(
            [node, str(EXAMPLES / "node" / "settings.js"), cluster.hosts()], {"NODE_PATH": modules}
        )
        assert found == f"NODE_DATA_CHANGED: blue\n{QUICKER}\n"
