"""Builds wheels and sdists from a copy of the committed tree, so that the same commit gives the same bytes."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.packaging.distributions import DISTRIBUTIONS
from tests.release.errors import ReleaseError

UMASK: Final = 0o022
OUTPUT_CHARACTERS_MAX: Final = 4_000


def build(tree: Path, out: Path, epoch_s: int, env: Mapping[str, str] | None = None) -> list[Path]:
    """Build both distributions: each wheel from its sdist, as installers that get the sdist do.

    Args:
        tree: a copy of the committed files; what building leaves behind goes there.
        out: a directory, which is made.
        epoch_s: the time that every file in an archive has, in seconds since 1970.
        env: environment variables beside ours.

    Raises:
        ReleaseError: a build failed, with the end of what it said.
    """
    for folder in DISTRIBUTIONS.values():
        command = [
            sys.executable,
            "-m",
            "build",
            "--installer",
            "uv",
            "--outdir",
            str(out),
            str(tree / folder),
        ]
        done = subprocess.run(
            command,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            umask=UMASK,
        )
        if done.returncode:
            raise ReleaseError(f"`{' '.join(command)}` failed:\n{done.stdout[-OUTPUT_CHARACTERS_MAX:]}")
    for sdist in out.glob("*.tar.gz"):
        sdist.write_bytes(normalised(sdist.read_bytes(), epoch_s))
    return sorted(out.iterdir())


def normalised(sdist: bytes, epoch_s: int) -> bytes:
    """The same sdist without what depends on who built it, where and when.

    setuptools dates the files of an sdist by the file system, and names their owner.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(sdist)) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old, key=lambda one: one.name):
            fresh = tarfile.TarInfo(member.name)
            fresh.type, fresh.size, fresh.mtime = member.type, member.size, epoch_s
            fresh.mode = 0o755 if member.isdir() else 0o644
            new.addfile(fresh, old.extractfile(member))
    return gzip.compress(packed.getvalue(), mtime=epoch_s)


def check_equal(first: Path, second: Path) -> None:
    """Refuse two builds of which a file differs.

    Raises:
        ReleaseError: which files.
    """
    names = {path.name for directory in (first, second) for path in directory.iterdir()}
    differing = [name for name in sorted(names) if _bytes(first / name) != _bytes(second / name)]
    if differing:
        raise ReleaseError(
            f"two builds of one commit differ in {', '.join(differing)}; `diffoscope` shows where. "
            f"They are in {first} and {second}"
        )


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
