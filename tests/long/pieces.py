"""The pieces of `.ci/long`: what each shows, which commands it is, and how long it may take.

A folder's long tests belong to the piece that names the folder or the nearest one above it, so a new long
test is in exactly one piece without being listed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from attrs import frozen

LONG: Final = "long and not compat and not chaos"
MINUTE: Final = 60
RUN_S_MAX: Final = 120 * MINUTE
"""Of one run of `.ci/long`. A piece's bound is far above what it takes, so that the bounds add up to more."""

PYTHONS: Final = ("3.11", "3.12", "3.13")
"""The releases of Python that are supported: those of the classifiers in setup.cfg."""


@frozen
class Piece:
    """One part of the run. Its commands run one after the other, whether or not those before failed."""

    name: str
    about: str
    commands: tuple[tuple[str, ...], ...]
    bound_s: int
    """On two quiet cores; a piece that takes longer is ended and has failed."""
    needs_root: bool = False
    may_be_empty: bool = False
    """It is no failure if it has no tests at present."""
    python: str = ""
    """A release of Python that it needs beside the one that has everything installed."""


FOLDERS: Final = {
    "images": ("tests/images",),
    "power-cuts": ("tests/sim/test_power_cuts.py",),
    "computed": ("tests/sim", "tests/topics_sim", "tests/unit", "tests/paper"),
    "servers": ("tests/processes",),
    "upgrade": ("tests/upgrade",),
    "peers": ("tests/onyxlog",),
    "audits": ("tests/onyxlog/audits",),
    "hostile": ("tests/hostile",),
    "documents": ("tests/documents",),
    "console": ("tests/console",),
    "other-tests": ("tests",),
}
"""Which piece has the long tests of which folders: the longest name that a path begins with decides."""


def long_tests_of(piece: str) -> tuple[str, ...]:
    """Arguments that select the long tests of a piece: its folders, without what is another's below them."""
    own = FOLDERS[piece]
    others = [path for name, paths in FOLDERS.items() if name != piece for path in paths]
    below = [path for path in others if any(path.startswith(f"{folder}/") for folder in own)]
    return ("-m", LONG, *(f"--ignore={path}" for path in below), *own)


def piece_of(path: str) -> str:
    """Whose a long test in this file is."""
    owners = {
        folder: name
        for name, folders in FOLDERS.items()
        for folder in folders
        if path == folder or path.startswith(f"{folder}/")
    }
    return owners[max(owners, key=len)]


def pieces(python: str, seed: int, out: Path) -> tuple[Piece, ...]:
    """All of them, in the order in which they run: what fails soonest first.

    Args:
        python: the interpreter that has everything installed.
        seed: what every range of seeds begins with, and every test that draws.
        out: a directory; what a piece leaves behind is in PIECE.out below it, which must not be there when it begins.
    """
    cores = str(os.cpu_count() or 1)

    def tests(*words: str, parallel: bool = False) -> tuple[str, ...]:
        spread = ("-n", "auto") if parallel else ()
        return (python, "-m", "pytest", "-q", "--seed", str(seed), *spread, *words)

    def seeds(simulator: str, count: int, *options: str) -> tuple[str, ...]:
        count_and_first = ("--seeds", str(count), "--start", str(seed))
        return (python, "-m", "tests.simulation", simulator, *count_and_first, "--jobs", cores, *options)

    def planted(simulator: str) -> tuple[str, ...]:
        return (python, "-m", "tests.simulation", simulator, "--planted", "all", "--jobs", cores)

    def on_python(release: str) -> Piece:
        """A piece that makes an environment of another Python, and runs tests without processes and seeds in it."""
        scratch = str(out / f"python-{release}.out")
        words = ("--release", release, "--scratch", scratch, "--seed", str(seed), "--jobs", cores)
        return Piece(
            f"python-{release}",
            f"Unit tests and fresh seeds under Python {release}.",
            ((python, "-m", "tests.long.pythons", *words),),
            15 * MINUTE,
            python=release,
        )

    return (
        Piece(
            "images",
            "The image is built, and compose's servers and peers run from it.",
            (tests(*long_tests_of("images")),),
            10 * MINUTE,
            needs_root=True,
        ),
        Piece(
            "release",
            "A release of this commit is built, checked, installed and tried, and tagged in a clone.",
            ((".ci/release", "--rehearse"),),
            10 * MINUTE,
        ),
        Piece(
            "fuzz",
            "Spoiled input of every kind is refused and costs itself only.",
            ((python, "-m", "tests.fuzz", "--seed", str(seed)),),
            4 * MINUTE,
        ),
        Piece(
            "cluster-seeds",
            "Fresh seeds of the simulated cluster keep every promise; planted bugs are noticed.",
            (seeds("cluster", 250), seeds("cluster", 50, "--connections"), planted("cluster")),
            12 * MINUTE,
        ),
        Piece(
            "group-seeds",
            "The same with hundreds of groups per server.",
            (seeds("groups", 10), planted("groups")),
            8 * MINUTE,
        ),
        Piece(
            "partition-seeds",
            "The same with partitions and their disks.",
            (seeds("partitions", 10), planted("partitions")),
            8 * MINUTE,
        ),
        Piece(
            "hosting-seeds",
            "Whole servers with partitions, whose power fails at any step, keep every delivery.",
            (seeds("hosting", 10), planted("hosting")),
            8 * MINUTE,
        ),
        Piece(
            "multicast-seeds",
            "The same with atomic multicast; the published algorithms' mistakes are noticed.",
            (
                seeds("multicast", 500),
                planted("multicast"),
                (python, "-m", "tests.simulation", "controls"),
            ),
            6 * MINUTE,
        ),
        Piece(
            "claim-seeds",
            "The same with consumers that claim partitions.",
            (seeds("claims", 100), planted("claims")),
            6 * MINUTE,
        ),
        *(on_python(release) for release in PYTHONS),
        Piece(
            "computed",
            "Long tests without processes: crashes at every step, simulators, many seeds.",
            (tests(*long_tests_of("computed"), parallel=True),),
            10 * MINUTE,
        ),
        Piece(
            "power-cuts",
            "A power cut at every step of every disk loses nothing.",
            (tests(*long_tests_of("power-cuts"), parallel=True),),
            20 * MINUTE,
        ),
        Piece(
            "servers",
            "Long tests of real servers.",
            (tests(*long_tests_of("servers")),),
            20 * MINUTE,
        ),
        Piece(
            "loops",
            "Coroutine tests with real processes run on uvloop, too.",
            (
                tests(
                    *("--every-loop", "-k", "uvloop"),
                    *("-m", "processes and not long and not compat and not chaos and not spark", "tests"),
                ),
            ),
            8 * MINUTE,
        ),
        Piece(
            "upgrade",
            "This release beside the last one: both ways, mixed, taken back; fresh seeds of simulated servers of both.",
            (
                tests(*long_tests_of("upgrade")),
                (python, "-m", "tests.upgrade.mixed_simulation", "--seeds", "60", "--start", str(seed)),
            ),
            20 * MINUTE,
        ),
        Piece(
            "peers",
            "Long tests of peers.",
            (tests(*long_tests_of("peers")),),
            8 * MINUTE,
        ),
        Piece(
            "audits",
            "Long tests of audits on Spark.",
            (tests(*long_tests_of("audits")),),
            8 * MINUTE,
        ),
        Piece(
            "hostile",
            "Attacks on real servers stall nobody else for long, and take neither the leadership nor the memory.",
            (tests("-s", *long_tests_of("hostile")),),
            30 * MINUTE,
        ),
        Piece(
            "documents",
            "The examples of all documents run as they stand, twice, on one cluster.",
            (tests(*long_tests_of("documents")),),
            15 * MINUTE,
            needs_root=True,
        ),
        Piece(
            "console",
            "The web console in Chromium, before three servers of which one is killed.",
            (tests(*long_tests_of("console")),),
            8 * MINUTE,
        ),
        Piece(
            "other-tests",
            "Long tests of all other folders.",
            (tests(*long_tests_of("other-tests")),),
            5 * MINUTE,
            may_be_empty=True,
        ),
        Piece(
            "compat",
            "Clients and programs written for ZooKeeper, and ZooKeeper itself beside zraft.",
            ((python, "-m", "tests.compat.install"), tests("-m", "compat", "tests")),
            20 * MINUTE,
        ),
        Piece(
            "chaos",
            "Minutes of faults on real servers break no promise.",
            (tests("-m", "chaos", "tests"),),
            15 * MINUTE,
        ),
        Piece(
            "everything",
            "Topics, claims, peers and clients under faults, then an audit of all they left; a soak in two pieces.",
            (
                (
                    *(python, "-m", "tests.onyxlog.audits.everything", "--minutes", "1"),
                    *("--seed", str(seed), "--out", str(out / "everything.out")),
                ),
                (
                    *(python, "-m", "tests.soak", "--pieces", "2", "--piece-minutes", "0.5"),
                    *("--seed", str(seed), "--out", str(out / "everything.out/soak")),
                ),
            ),
            15 * MINUTE,
        ),
    )
