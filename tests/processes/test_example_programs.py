"""The programs in examples/ do what they say on a real server, and do it again."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.processes.cluster import ROOT, Cluster, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

EXAMPLES: Final = ROOT / "examples"
PROGRAM_S: Final = 60
SAYS: Final = {
    "kazoo_client/lock_and_watch.py": "6 times, one worker at a time",
    "dictionary/blocking.py": "20 bolts sold, order number ",
    "dictionary/asynchronous.py": "the copy has it, too",
    "topic/orders.py": "100 orders came",
}
"""The line that a program prints when it has worked."""

ELSEWHERE: Final = {
    "java/Settings.java": "tests/compat",
    "node/settings.js": "tests/compat",
    "words/words.py": "docs/index.md",
}
"""The command that is run there."""

TTL_S: Final = 1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server; sessions may be as short as a test wants them."""
    short = {"ZRAFT_TICK_TIME_MS": "500"}
    with Cluster(tmp_path_factory.mktemp("examples"), servers=1, env=short) as cluster:
        cluster.start_all()
        yield cluster


def test_every_program_is_run_and_has_its_command_in_the_readme() -> None:
    programs = {
        path.relative_to(EXAMPLES).as_posix()
        for path in EXAMPLES.glob("*/*")
        if path.suffix in {".py", ".java", ".js"}
    }
    assert programs == {*SAYS, *ELSEWHERE, "leader/database.py"}
    commands = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert {name for name in programs if f"examples/{name}" not in commands} == {"words/words.py"}


@pytest.mark.parametrize("program", SAYS)
def test_an_example_works_twice_and_warns_of_nothing(server: Cluster, program: str) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", EXAMPLES / program, server.hosts()],
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            env=server.environment(1),
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert SAYS[program] in done.stdout


Start = Callable[[str], "Member"]


class Member:
    """A member of the pretended cluster of databases; `log` is what it printed."""

    def __init__(self, server: Cluster, directory: Path, name: str) -> None:
        self.name = name
        self.log = directory / name
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-W", "error", str(EXAMPLES / "leader" / "database.py"), name),
                    *("--connect", server.hosts(), "--ttl", str(TTL_S)),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=server.environment(1),
            )

    def roles(self) -> list[str]:
        """Return the roles that it has had, in order, without its name."""
        return [line.removeprefix(f"{self.name}: ") for line in self.log.read_text().splitlines()]

    def _is(self, role: str) -> bool:
        return self.roles()[-1:] == [role] or (role == "primary" and self._leads())

    def _leads(self) -> bool:
        return self.roles()[-1:] != [] and self.roles()[-1].startswith("primary, ")

    def wait_is(self, role: str) -> None:
        wait_until(partial(self._is, role), f"{self.name} to be {role}; it was {self.roles()}")

    def tokens(self) -> list[int]:
        return [int(found) for found in re.findall(r"with token (\d+)", self.log.read_text())]


@pytest.fixture
def member(server: Cluster, tmp_path: Path) -> Iterator[Start]:
    """A function that starts a member."""
    with ExitStack() as stack:

        def start(name: str) -> Member:
            one = Member(server, tmp_path, name)
            stack.callback(one.process.wait, PROGRAM_S)
            stack.callback(one.process.kill)
            return one

        yield start


def test_the_leader_of_a_database_is_replaced_when_it_is_killed_and_when_it_stops(
    server: Cluster, member: Start
) -> None:
    anna = member("anna")
    anna.wait_is("primary")
    bert = member("bert")
    bert.wait_is("replica of anna")
    anna.process.kill()
    bert.wait_is("primary")
    carl = member("carl")
    carl.wait_is("replica of bert")
    bert.process.send_signal(signal.SIGINT)
    carl.wait_is("primary")
    assert bert.process.wait(PROGRAM_S) == 0
    assert bert.roles()[-1] == "replica of nobody, because it stops"
    tokens = [*anna.tokens(), *bert.tokens(), *carl.tokens()]
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 3


def test_the_leader_of_a_database_steps_down_while_no_server_answers(server: Cluster, member: Start) -> None:
    anna = member("anna")
    anna.wait_is("primary")
    server.kill(1)
    anna.wait_is("replica of nobody, because the connection is lost")
    server.start(1)
    anna.wait_is("primary")
    anna.process.terminate()
    assert anna.process.wait(PROGRAM_S) == 0
