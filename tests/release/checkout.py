"""A checkout of git from which a release is made: its commit, its tags, its files as they are committed."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from tests.release.errors import ReleaseError
from tests.release.versions import STATED

CHANGELOG = "CHANGELOG.md"


class Checkout:
    """Runs git in one directory.

    Attributes:
        root: the directory.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def git(self, *words: str, text: str | None = None) -> str:
        """Return what a command of git writes to its standard output, without the last newline.

        Raises:
            ReleaseError: it fails, or there is no git.
        """
        return self._run(*words, data=None if text is None else text.encode()).decode().rstrip("\n")

    def _run(self, *words: str, data: bytes | None = None) -> bytes:
        command = ["git", *words]
        try:
            done = subprocess.run(command, cwd=self.root, input=data, capture_output=True, check=False)
        except FileNotFoundError as error:
            raise ReleaseError("git is not installed, and a release is made from a commit") from error
        if done.returncode:
            raise ReleaseError(
                f"`{' '.join(command)}` failed in {self.root}: {done.stderr.decode(errors='replace').strip()}"
            )
        return done.stdout

    def commit(self) -> str:
        return self.git("rev-parse", "HEAD")

    def epoch_s(self) -> int:
        """The time of the commit, in seconds since 1970."""
        return int(self.git("show", "--no-patch", "--format=%ct", "HEAD"))

    def tags(self) -> list[str]:
        return self.git("tag", "--list").splitlines()

    def check_clean(self) -> None:
        """Refuse a tree that is not what is committed, files that nobody added included.

        Raises:
            ReleaseError: the first of what differs.
        """
        changes = self.git("status", "--porcelain").splitlines()
        if changes:
            shown = "".join(f"\n  {line}" for line in changes[:8])
            raise ReleaseError(
                f"found {len(changes)} changes that are not committed, expected none: commit, stash or remove them{shown}"
            )

    def read(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        (self.root / path).write_text(text, encoding="utf-8")

    def stating(self) -> dict[str, str]:
        """The files that state the version."""
        return {path: self.read(path) for path in STATED}

    def export(self, directory: Path) -> Path:
        """Write the committed files into a new directory; their times are the commit's."""
        directory.mkdir(parents=True)
        with tarfile.open(fileobj=io.BytesIO(self._run("archive", "HEAD"))) as archive:
            archive.extractall(directory, filter="data")
        return directory

    def tag(self, name: str, message: str) -> None:
        """Make an annotated tag of the commit."""
        # Lines that begin with "#" are headings of the notes, no comments.
        self.git("tag", "--annotate", "--cleanup=whitespace", "--file=-", name, text=message)
