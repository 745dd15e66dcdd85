"""Results files: JSON, written whole after every test, so that a run that is interrupted keeps what it has."""

from __future__ import annotations

import json
import os
import platform
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from attrs import evolve

from zraft import __version__
from zraft_bench.records import RecordError, from_plain, to_plain
from zraft_bench.results import FORMAT, Machine, Run
from zraft_core.errors import ConfigError

FILE_BYTES_MAX: Final = 256 * 1024 * 1024


def this_machine() -> Machine:
    """Return what this machine is, for a results file."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(
        name=platform.node(),
        cores=cores,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
    )


def new_run(kind: str, *, title: str = "", settings: dict[str, str] | None = None) -> Run:
    """Return a run that begins now, on this machine."""
    return Run(
        kind=kind,
        id=secrets.token_hex(4),
        started=_now(),
        version=__version__,
        machines=(this_machine(),),
        title=title,
        settings=settings or {},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class ResultFile:
    """One run's file, `result_<time>_<kind>.json` unless another name is given."""

    def __init__(self, directory: Path, run: Run, name: str | None = None) -> None:
        stamp = run.started.replace(":", "").replace("+0000", "Z")
        self.path = directory / (name or f"result_{stamp}_{run.kind}.json")
        self.run = run
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--out: cannot make {directory}: {error.strerror}") from error

    def save(self, run: Run) -> None:
        """Replace the file's content: a reader sees the one or the other, never a half.

        Raises:
            ConfigError: the file cannot be written.
        """
        self.run = evolve(run, ended=_now())
        text = json.dumps(to_plain(self.run), indent=1, ensure_ascii=False, allow_nan=False)
        temporary = self.path.with_name(self.path.name + ".new")
        try:
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.replace(self.path)
        except OSError as error:
            raise ConfigError(f"--out: cannot write {self.path}: {error.strerror}") from error


def load_run(path: Path) -> Run:
    """Load a results file.

    Raises:
        ConfigError: it cannot be read, or is none of this format.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes, which no results file is")
        plain = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: no JSON: {error}") from error
    found = plain.get("format") if isinstance(plain, dict) else None
    if found != FORMAT:
        raise ConfigError(f"{path}: expected a results file of format {FORMAT}, found format {found!r}")
    try:
        return from_plain(Run, plain, path.name)
    except RecordError as error:
        raise ConfigError(f"{path}: {error}") from error
