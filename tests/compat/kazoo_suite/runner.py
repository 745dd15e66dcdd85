"""Runs kazoo's own test-suite against zraft, or against ZooKeeper, and compares the outcome with what is known.

    python -m tests.compat.kazoo_suite.runner [--against zookeeper] [-k EXPRESSION]

Nothing of kazoo's is in this repository: the sdist comes from PyPI, and of it only `kazoo/testing/common.py`, which
starts servers, is replaced (by `harness`), and only when the servers are ours. A test that fails without being
excused is a failure of this program, and so is an excused test that passes: a list that is not true helps nobody.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.compat.install import ROOT, kazoo_suite
from tests.compat.kazoo_suite.excused import EXCUSED, FAILS_ON_ZOOKEEPER

ZOOKEEPER_JARS: Final = Path("/usr/share/java")
"""Where Debian's package `zookeeper` puts them."""
HARNESS: Final = Path(__file__).with_name("harness.py")
PORT_RANGE: Final = (20_000, 32_000)
"""Below the range that Linux takes client ports from."""


def unpack(sdist: Path, into: Path) -> Path:
    """The fresh source tree of kazoo."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    with tarfile.open(sdist) as archive:
        # CPython before 3.11.4, Debian's for one, has no filters
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(into)
    return next(into.iterdir())


def run_suite(against: str, arguments: Sequence[str]) -> dict[str, str]:
    """Run it; test id ("test_lock.py::KazooLockTests::test_lock") to outcome: passed, failed or skipped."""
    python, sdist, work = kazoo_suite()
    tree = unpack(sdist, work / against)
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment |= {
        "CI": "true",  # one test runs only there
        "PYTHONPATH": str(tree),
        "ZOOKEEPER_PORT_OFFSET": str(random.SystemRandom().randrange(*PORT_RANGE, 10)),
        "ZOOKEEPER_CLUSTER_SIZE": "3",
    }
    if against == "zookeeper":
        environment |= {"ZOOKEEPER_PATH": str(ZOOKEEPER_JARS), "ZOOKEEPER_VERSION": "3.8.0"}
    else:
        shutil.copyfile(HARNESS, tree / "kazoo" / "testing" / "common.py")
        environment |= {
            "ZOOKEEPER_VERSION": "3.9.5",
            "ZRAFT_PYTHON": sys.executable,
            "ZRAFT_CHECKOUT": str(ROOT),
        }
    report = work / f"{against}.xml"
    report.unlink(missing_ok=True)
    subprocess.run(
        [
            *(str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "log_cli=false"),
            *("--color=no", f"--junitxml={report}", *arguments, "kazoo/tests"),
        ],
        cwd=tree,
        env=environment,
        check=False,
    )
    return read_report(report.read_text())


def read_report(report: str) -> dict[str, str]:
    """Test id to outcome, from pytest's JUnit XML."""
    outcomes: dict[str, str] = {}
    for case in ET.fromstring(report).iter("testcase"):
        module, *classes = case.attrib["classname"].removeprefix("kazoo.tests.").split(".")
        name = "::".join((module + ".py", *classes, case.attrib["name"]))
        found = {child.tag for child in case}
        outcome = "failed" if found & {"failure", "error"} else "skipped" if "skipped" in found else "passed"
        # An error in tearDown comes as a second element of the same test.
        if outcomes.get(name) != "failed":
            outcomes[name] = outcome
    return outcomes


def compare(outcomes: Mapping[str, str], excused: Mapping[str, str], *, all_ran: bool) -> list[str]:
    """What is not as expected, a line each; empty if every test passed or is excused and did not."""
    complaints = [
        f"{name}: {outcome}, and not excused"
        for name, outcome in sorted(outcomes.items())
        if outcome != "passed" and name not in excused
    ]
    complaints += [
        f"{name}: passed, but is excused ({reason}); take it off the list"
        for name, reason in sorted(excused.items())
        if outcomes.get(name) == "passed"
    ]
    if all_ran:
        complaints += [
            f"{name}: excused, but there is no such test" for name in sorted(set(excused) - set(outcomes))
        ]
    return complaints


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="runner", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("zraft", "zookeeper"), default="zraft")
    parser.add_argument("-k", metavar="EXPRESSION", help="only these tests, as pytest's -k")
    chosen = parser.parse_args(argv)
    outcomes = run_suite(chosen.against, ("-k", chosen.k) if chosen.k else ())
    excused = EXCUSED if chosen.against == "zraft" else FAILS_ON_ZOOKEEPER
    complaints = compare(outcomes, excused, all_ran=chosen.k is None)
    counts = {word: list(outcomes.values()).count(word) for word in ("passed", "failed", "skipped")}
    print(f"\nagainst {chosen.against}: {counts}; {len(excused)} excused")
    print("\n".join(complaints) or "as expected")
    if not outcomes:
        print("no test ran")
    return 1 if complaints or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
