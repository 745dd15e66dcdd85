"""A streaming audit whose processes are killed in a batch goes on from its checkpoint: nothing missed, nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.onyxlog.audits.diverged import diverged
from tests.onyxlog.audits.killed_audit import HERE, TOLD, WRITTEN

pytest.importorskip("pyspark", reason="needs the extra `audits`")

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1_800)]

REPOSITORY = Path(__file__).parents[3]
INDEXES = (20, 40, 60, 80, 100, 120, 140)
BYTES = 80_000
"""Of all three logs together: some five batches."""


class Audit:
    """The process, in a group of its own, with the JVM that it starts."""

    def __init__(self, path: Path, checkpoint: Path, *stop: str) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.onyxlog.audits.killed_audit"),
                *(str(path), str(checkpoint), str(BYTES), *stop),
            ],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Audit:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def told(self) -> list[str]:
        """What it said until it stands still, or ends."""
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            if line.strip() == HERE:
                break
            lines.append(line.strip())
        return lines

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.wait() == -signal.SIGKILL

    def wait(self) -> int:
        return self._process.wait()


def batches(checkpoint: Path, what: str) -> list[int]:
    return sorted(
        int(path.name.removeprefix("batch=")) for path in (checkpoint / what / "entries").glob("batch=*")
    )


def test_an_audit_that_is_killed_twice_in_a_batch_finds_all_and_each_once(
    generated: Path, tmp_path: Path
) -> None:
    """Killed between the violations of a batch and what it leaves open, then between the alarm and Spark's note of it."""
    path, checkpoint = tmp_path / "diverged", tmp_path / "checkpoint"
    diverged(generated, path, INDEXES)
    told: list[int] = []

    with Audit(path, checkpoint, "1", WRITTEN) as first:
        told += map(int, first.told())
        assert max(batches(checkpoint, "violations")) == 1, "it was not in the middle of the batch"
        assert batches(checkpoint, "open") == [0]
        first.kill()

    with Audit(path, checkpoint, "2", TOLD) as second:
        before = len(told)
        told += map(int, second.told())
        assert len(told) > before, "the batch in which it was killed has a violation"
        commits = [int(one.name) for one in (checkpoint / "spark/entries/commits").glob("[0-9]*")]
        assert max(commits) == 1, "Spark had noted the batch as done"
        second.kill()

    with Audit(path, checkpoint) as last:
        *more, everything = last.told()
        assert last.wait() == 0
    told += map(int, more)
    assert everything == " ".join(["all", *map(str, INDEXES)]), "missed, or found twice"
    assert max(batches(checkpoint, "open")) > 2
    # Who was killed after an alarm gives it again: it cannot know that it was heard.
    assert set(told) == set(INDEXES)
    assert len(told) - len(INDEXES) <= 2
