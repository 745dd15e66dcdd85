"""Runs the unit tests and some seeds under another release of Python, in an environment that it makes.

    python -m tests.long.pythons --release 3.12 --scratch DIRECTORY --seed 17 --jobs 2

An interpreter is looked for on the PATH and where pyenv keeps its own. It is not fetched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from tests.images.dockerfile import copy_sources
from tests.packaging.distributions import setup_cfg
from tests.packaging.modules import REPOSITORY, ROOTS

TESTS: Final = ("tests/unit", "tests/paper", "tests/client", "tests/traps", "tests/packaging/test_package.py")
MARKED: Final = "not long and not compat and not chaos and not processes and not spark"
SEEDS: Final = {"cluster": 20, "partitions": 2, "multicast": 40, "claims": 10}
TOOLS: Final = frozenset({"mypy", "pandas", "pyarrow", "pyspark"})
"""Packages of the extra `dev` that are large, and that these tests do without."""
ASKING: Final = "import sys; print('%d.%d' % sys.version_info[:2])"


def candidates(release: str, env: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Return the places where an interpreter of a release may be, the likeliest first."""
    name = f"python{release}"
    yield Path(sys.executable)
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        yield Path(folder, name)
    pyenv = Path(env.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob(f"versions/{release}.*/bin/{name}"), reverse=True)


def find_python(release: str, env: Mapping[str, str] = os.environ) -> Path | None:
    """An interpreter of this release that works and can make environments; None if there is none.

    Programs of that name that only choose an interpreter, such as pyenv's, may have nothing to choose from.
    """
    for path in candidates(release, env):
        if not os.access(path, os.X_OK):
            continue
        answer = subprocess.run(
            [path, "-c", f"import ensurepip, ssl, venv; {ASKING}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode == 0 and answer.stdout.strip() == release:
            return path
    return None


def without(release: str) -> str:
    """Why nothing can be run under this release here; empty if it can."""
    if find_python(release) is not None:
        return ""
    return f"no python{release} on the PATH or below ~/.pyenv/versions: install it, with its modules venv and ssl"


def requirements(tools: frozenset[str] = TOOLS) -> list[str]:
    """Return what both distributions and their tests need, as pip takes it."""
    stated = [
        *setup_cfg("zraft-client")["options"]["install_requires"].splitlines(),
        *setup_cfg("zraft")["options"]["install_requires"].splitlines(),
        *setup_cfg("zraft")["options.extras_require"]["dev"].splitlines(),
    ]
    names = {line.strip() for line in stated if line.strip()}
    return sorted(
        line for line in names if not line.startswith("zraft-client") and _package(line) not in tools
    )


def _package(requirement: str) -> str:
    return requirement.partition(">")[0].strip()


def commands(python: str, seed: int, jobs: int) -> list[list[str]]:
    """Return the command that the interpreter of the environment runs."""
    tests = [python, "-m", "pytest", "-q", "--seed", str(seed), "-n", str(jobs), "-m", MARKED, *TESTS]
    seeds = [
        [
            *(python, "-m", "tests.simulation", simulator),
            *("--seeds", str(count), "--start", str(seed), "--jobs", str(jobs)),
        ]
        for simulator, count in SEEDS.items()
    ]
    return [tests, *seeds]


def environment() -> dict[str, str]:
    """Ours, with the checkout's packages and nothing else."""
    folders = sorted({str(root.parent) for root in ROOTS.values()})
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


def checked(command: Sequence[str]) -> None:
    print(f"$ {' '.join(command)}", flush=True)
    subprocess.run(command, cwd=REPOSITORY, check=True)


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--release", required=True, metavar="3.12")
@click.option(
    "--scratch", required=True, type=click.Path(path_type=Path), help="A directory for the environment."
)
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0))
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, type=click.IntRange(1))
def main(release: str, scratch: Path, seed: int, jobs: int) -> None:
    interpreter = find_python(release)
    if interpreter is None:
        raise click.ClickException(without(release))
    began = time.monotonic()
    shutil.rmtree(scratch, ignore_errors=True)
    python = str(scratch / "bin" / "python")
    checked([str(interpreter), "-m", "venv", str(scratch)])
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    checked([*install, *requirements()])
    # For the entry points: the code that runs is the checkout's. Building in a copy leaves nothing behind in that.
    copy_sources(scratch / "source")
    checked([*install, "--no-deps", str(scratch / "source" / "client"), str(scratch / "source")])
    failed = []
    for command in commands(python, seed, jobs):
        print(f"$ {' '.join(command)}", flush=True)
        if subprocess.run(command, cwd=REPOSITORY, env=environment(), check=False).returncode:
            failed.append(command)
    version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    print(
        f"{version}: {len(failed)} of {len(SEEDS) + 1} commands failed after {time.monotonic() - began:.0f} s"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
