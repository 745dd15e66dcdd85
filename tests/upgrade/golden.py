"""Golden data directories: what servers of the last release wrote, kept to be opened by every later one.

    python -m tests.upgrade.golden          make them again, from the last release's own code

There are four, each of a cluster of one server: freshly founded; with znodes of all kinds, sessions and ACLs, and a log that
begins behind a snapshot; torn, whose power failed in the middle of a write; with topics and delivered messages. Beside
each is its content, as the last release itself read it.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from attrs import frozen

from tests.simulation.compare import REPOSITORY, git

LAST_RELEASE: Final = "55779ea"
"""The commit of the release that this one replaces."""
KEPT: Final = Path(__file__).parent / "directories"
NAMES: Final = ("founded", "znodes", "torn", "topics")
WRITER: Final = Path(__file__).parent / "writer.py"
MAKE_S: Final = 120


class NoReleaseError(Exception):
    """This checkout has not got the last release's commit."""


@frozen
class Golden:
    """A directory, and what the last release read in it.

    Attributes:
        files: by path below the directory; None for a directory.
        content: as `writer.py` describes it.
    """

    files: dict[str, bytes | None]
    content: dict[str, Any]

    def write(self, directory: Path) -> None:
        """Put the files into an empty directory, which is made if it is not there."""
        directory.mkdir(parents=True, exist_ok=True)
        for path, data in sorted(self.files.items()):
            if data is None:
                (directory / path).mkdir()
            else:
                (directory / path).write_bytes(data)


def golden(name: str) -> Golden:
    """One of those that are kept."""
    files: dict[str, bytes | None] = {}
    with tarfile.open(KEPT / f"{name}.tar.xz") as archive:
        for member in archive:
            content = archive.extractfile(member)
            files[member.name] = None if content is None else content.read()
    content_file = files.pop("content.json")
    assert content_file is not None
    return Golden(files, json.loads(content_file))


def keep(name: str, made: Golden) -> None:
    """Write it to where `golden` finds it."""
    files = made.files | {"content.json": json.dumps(made.content, indent=0).encode()}
    with tarfile.open(KEPT / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        for path, data in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.mode = 0o755 if data is None else 0o644
            member.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            member.size = 0 if data is None else len(data)
            archive.addfile(member, None if data is None else io.BytesIO(data))


def extract_release(directory: Path) -> Path:
    """The last release's files, in an empty directory.

    Raises:
        NoReleaseError: this is no repository, or one without that commit.
    """
    try:
        archive = subprocess.run(
            ["git", "archive", LAST_RELEASE], cwd=REPOSITORY, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        raise NoReleaseError(
            f"the last release, commit {LAST_RELEASE}, is fetched by git: {error}"
        ) from error
    if archive.returncode:
        shallow = git("rev-parse", "--is-shallow-repository").stdout.strip() == "true"
        advice = (
            "it is shallow; `git fetch --unshallow` brings it" if shallow else archive.stderr.decode().strip()
        )
        raise NoReleaseError(f"the last release, commit {LAST_RELEASE}, is not in this checkout: {advice}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory


def path_of(release: Path) -> str:
    """The PYTHONPATH with which the code of a release's tree runs, and none of this one's."""
    return os.pathsep.join((str(release), str(release / "client")))


def make(name: str, release: Path) -> Golden:
    """Have it written by the code of the last release, which was extracted there."""
    answer = subprocess.run(
        [sys.executable, str(WRITER), name],
        cwd=release,
        # The order of sets decides in which order an image has what it has.
        env=os.environ | {"PYTHONPATH": path_of(release), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=MAKE_S,
        check=False,
    )
    if answer.returncode:
        raise AssertionError(answer.stderr)
    found = json.loads(answer.stdout)
    files = {path: None if data is None else base64.b64decode(data) for path, data in found["files"].items()}
    return Golden(files, found["content"])


def main() -> None:
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        release = extract_release(Path(scratch))
        for name in NAMES:
            keep(name, make(name, release))
            print(f"{name}: {(KEPT / name).with_suffix('.tar.xz').stat().st_size} bytes")


if __name__ == "__main__":
    main()
