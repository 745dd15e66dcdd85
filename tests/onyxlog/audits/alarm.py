"""How long an alarm takes: `python -m tests.onyxlog.audits.alarm [--plants 5] [--waiting 90000]`.

Three journals grow by a digest of the state each half a second, as servers write them, and `onyxlog audit-follow` reads
along. Now and then one of them has another digest: from that note, on the disk, to the line of the alarm is what is printed,
with the processors that the audit uses meanwhile. With `--waiting` one of the servers is down: so many entries of the others
wait for it from the start, and with each digest come 50 more. `--idle` measures, before that, the processors that it uses
while nothing is written.
"""

from __future__ import annotations

import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Final

import click

from onyxlog.audits.costs import tree
from onyxlog.audits.generating import Generator, Scenario, directories
from zraft.storage.directory import read_meta
from zraft.storage.filesystem import RealFileSystem
from zraft.storage.journal import JournalHeader, JournalNote, JournalWriter, NoteKind

EVERY_S: Final = 0.5
ENTRIES: Final = 50
INDEXES: Final = 1_024
PATIENT_S: Final = 600.0
SETTLED_S: Final = 30.0
"""After the start: what was there is judged, and the JVM has compiled what it will."""


class Journals:
    """Of the servers that run; they note at equal moments, which is the worst that they can do to an audit."""

    def __init__(self, path: Path, servers: int) -> None:
        self._writers = []
        self._index = 0
        fs = RealFileSystem()
        for data in list(directories(str(path)))[:servers]:
            meta = read_meta(fs, data)
            self._writers.append(JournalWriter(fs, data, JournalHeader(meta.server, meta.instance, 99)))

    def note(self, *, wrong: bool = False) -> int:
        """The next index."""
        self._index += INDEXES
        for number, writer in enumerate(self._writers):
            digest = (self._index + (wrong and number == 0)).to_bytes(16, "big")
            assert writer.add(JournalNote(NoteKind.DIGEST, 0, 0, self._index, 0, (), digest))
        return self._index


TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Of a process and all below it, so far."""
    return sum(one.cpu_ticks for one in tree(pid)) / TICKS_PER_S


def cores_used(pid: int, seconds: float) -> float:
    """By a process and all below it, for so long. What ends meanwhile does not count, as nobody may have noted its time."""
    before = {one.pid: one.cpu_ticks for one in tree(pid)}
    time.sleep(seconds)
    return sum(one.cpu_ticks - before.get(one.pid, 0) for one in tree(pid)) / TICKS_PER_S / seconds


def read_lines(stream: IO[str], lines: queue.Queue[tuple[float, str]]) -> None:
    for line in stream:
        lines.put((time.monotonic(), line))


@click.command()
@click.option("--plants", default=5, show_default=True)
@click.option("--interval", default=1.0, show_default=True, help="Of audit-follow.")
@click.option("--master", default="local[2]", show_default=True)
@click.option("--waiting", default=0, show_default=True, help="Entries that wait for a server that is down.")
@click.option("--idle", default=0.0, show_default=True, help="Seconds in which nothing is written, at first.")
def main(plants: int, interval: float, master: str, waiting: int, idle: float) -> None:
    with tempfile.TemporaryDirectory(prefix="alarm-") as name:
        path = Path(name, "data")
        if waiting:
            scenario = Scenario(waiting, batch=1, elections=0, snapshots=0, down=1)
        else:
            scenario = Scenario(1_000, snapshots=0)
        generator = Generator(str(path), scenario)
        generator.run()
        journals = Journals(path, scenario.servers - scenario.down)
        journals.note()

        def go_on(*, wrong: bool = False) -> int:
            for _ in range(ENTRIES if waiting else 0):
                generator.write(1)
            return journals.note(wrong=wrong)

        command = [sys.executable, "-m", "onyxlog", "audit-follow", str(path), "--master", master]
        command += ["--checkpoint", str(Path(name, "checkpoint")), "--interval", str(interval)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
        )
        assert process.stdout is not None
        lines: queue.Queue[tuple[float, str]] = queue.Queue()
        threading.Thread(target=read_lines, args=(process.stdout, lines), daemon=True).start()
        try:
            while "following" not in (line := lines.get(timeout=PATIENT_S)[1]):
                click.echo(line, nl=False, err=True)
            shown: dict[str, object] = {}
            if idle:
                time.sleep(SETTLED_S)
                shown["idle cores"] = round(cores_used(process.pid, idle), 3)
            took = []
            began, cpu_before = time.monotonic(), cpu_seconds(process.pid)
            for _ in range(plants):
                for _ in range(4):
                    go_on()
                    time.sleep(EVERY_S)
                index = go_on(wrong=True)
                planted = time.monotonic()
                while True:
                    try:
                        at, line = lines.get(timeout=EVERY_S)
                    except queue.Empty:
                        assert time.monotonic() - planted < PATIENT_S, "no alarm"
                        go_on()
                        continue
                    if line.startswith("S4 ") and f"index {index}" in line:
                        break
                took.append(at - planted)
            cores = (cpu_seconds(process.pid) - cpu_before) / (time.monotonic() - began)
        finally:
            process.kill()
            process.wait()
            generator.close()
    if took:
        shown |= {"seconds": [round(one, 2) for one in took], "median": statistics.median(took)}
        shown["cores"] = round(cores, 2)
    json.dump(shown, sys.stdout)
    print()


if __name__ == "__main__":
    main()
