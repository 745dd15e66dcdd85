"""Installs built archives into empty environments, as users do, and uses what is there.

uv makes the environments: it takes a second where pip takes ten, and an environment of its has nothing in it, not even pip.
`.ci/run` installs the wheels by pip.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.long.running import environment
from tests.processes.cluster import free_ports
from tests.release.errors import ReleaseError

OUTPUT_CHARACTERS_MAX: Final = 4_000
COMMAND_S: Final = 120.0
INSTALL_S: Final = 600.0
READY_S: Final = 120.0
STOP_S: Final = 30.0
IMPORTS: Final = 15
TIME_OF_IMPORT: Final = """
import time
began, began_cpu = time.perf_counter(), time.process_time()
import zraft_client
print(time.perf_counter() - began, time.process_time() - began_cpu)
"""

FIRST_TEST: Final = """
def test_a_value_is_read_back(zraft_server):
    with zraft_server.client() as client:
        client.create(zraft_server.path("/greeting"), b"hello")
        assert client.read(zraft_server.path("/greeting")).data == b"hello"
"""


def tool(name: str) -> str:
    """A program that `.ci/release` has installed beside this interpreter."""
    return str(Path(sys.executable).parent / name)


class Environment:
    """A virtual environment of its own, with only what was installed into it.

    Attributes:
        path: its directory.
        scratch: an empty directory, in which its programs run: none of them sees the checkout.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.scratch = path.with_name(f"{path.name}-scratch")
        self.scratch.mkdir()
        run(
            [tool("uv"), "venv", "--quiet", "--no-project", "--python", sys.executable, str(path)],
            self.scratch,
        )

    def install(self, *requirements: str | Path) -> None:
        """Install archives or packages with what they need.

        Raises:
            ReleaseError: it fails, with what the installer said.
        """
        command = [
            tool("uv"),
            "pip",
            "install",
            "--quiet",
            "--python",
            str(self.path),
            *map(str, requirements),
        ]
        run(command, self.scratch, timeout_s=INSTALL_S)

    def program(self, name: str) -> str:
        return str(self.path / "bin" / name)

    def run(self, name: str, *words: str) -> str:
        """Return what one of its programs prints.

        Raises:
            ReleaseError: it fails, or does not end.
        """
        return run([self.program(name), *words], self.scratch)


def run(command: Sequence[str], cwd: Path, timeout_s: float = COMMAND_S) -> str:
    """Return what a command prints.

    Raises:
        ReleaseError: it fails or does not end in time, with the end of what it printed.
    """
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=plain_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise ReleaseError(f"`{' '.join(command)}` did not end within {timeout_s:g} s") from error
    if done.returncode:
        raise ReleaseError(
            f"`{' '.join(command)}` exited with {done.returncode}, expected 0:\n{done.stdout[-OUTPUT_CHARACTERS_MAX:]}"
        )
    return done.stdout


def plain_environment() -> dict[str, str]:
    """Ours without what makes an interpreter find other packages, or a server other settings."""
    return {
        name: value
        for name, value in environment().items()
        if not name.startswith(("PYTHON", "ZRAFT_")) and name != "VIRTUAL_ENV"
    }


def check_commands(installed: Environment, version: str) -> None:
    """Each program starts, and says the version of this release.

    Raises:
        ReleaseError: one does not.
    """
    for name in ("zraft", "zraft-bench", "onyxlog"):
        said = installed.run(name, "--version").strip()
        if said != f"{name}, version {version}":
            raise ReleaseError(f"`{name} --version`: expected `{name}, version {version}`, found {said!r}")
        if "Usage:" not in installed.run(name, "--help"):
            raise ReleaseError(f"`{name} --help` shows no usage")


def check_server(installed: Environment, words: Sequence[str] = ()) -> None:
    """A server of `zraft dev` takes a write, and gives it back.

    Args:
        installed: where `zraft` is.
        words: what starts `zraft dev` in the place of the program there.

    Raises:
        ReleaseError: it does not serve, or the value is another one, or it does not end.
    """
    (port,) = free_ports(1)
    with _dev(words or (installed.program("zraft"), "dev"), port, installed.scratch):
        servers = ("--connect", f"127.0.0.1:{port}")
        installed.run("zraft", "put", "/release", "hello", *servers)
        found = installed.run("zraft", "get", "/release", *servers)
        if found != "hello":
            raise ReleaseError(f"`zraft get /release`: expected hello, found {found!r}")


@contextmanager
def _dev(words: Sequence[str], port: int, scratch: Path) -> Iterator[None]:
    """`zraft dev` with one server, until the end of the block."""
    data = scratch / f"data-{port}"
    command = [*words, "--servers", "1", "--port", str(port), "--admin-port", "0", "--data", str(data)]
    log = scratch / f"dev-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=scratch,
            env=plain_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # uvx runs `zraft dev` as its child: both get the signal.
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + READY_S
        while "ready" not in log.read_text(errors="replace").split():
            code = process.poll()
            if code is not None or time.monotonic() > deadline:
                why = f"exited with {code}" if code is not None else f"was not ready within {READY_S:g} s"
                raise ReleaseError(f"`{' '.join(command)}` {why}:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode:
        raise ReleaseError(
            f"`{' '.join(command)}` ended with {process.returncode} on SIGTERM, expected 0:\n"
            f"{log.read_text(errors='replace')}"
        )


def check_plugin(installed: Environment) -> None:
    """Pytest, installed beside it, finds the fixtures without being told.

    Raises:
        ReleaseError: a test that uses one does not pass.
    """
    installed.install("pytest")
    test = installed.scratch / "test_first.py"
    test.write_text(FIRST_TEST)
    installed.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test))


def import_s(installed: Environment) -> tuple[float, float]:
    """Return how long `import zraft_client` takes in an interpreter of its own: seconds, and seconds on a core.

    Both are medians, and byte code is there.
    """
    answers = [installed.run("python", "-c", TIME_OF_IMPORT).split() for _ in range(1 + IMPORTS)][1:]
    elapsed_s, cpu_s = (statistics.median(map(float, times)) for times in zip(*answers, strict=True))
    return elapsed_s, cpu_s
