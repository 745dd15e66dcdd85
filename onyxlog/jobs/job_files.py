"""Jobs from the files that people write: JSON, TOML, or Python by import path. Reads files and imports modules."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from onyxlog.errors import WorkflowError
from onyxlog.jobs.functions import resolve
from onyxlog.jobs.specification import Job, job_from_plain


def load_job(source: str) -> Job:
    """Load a job from "FILE.json", "FILE.toml", or "package.module:attribute", a `Job` or a function that makes one.

    Raises:
        WorkflowError: there is no such thing, or it is no job; the message says where in it. Whether the
            job can run is not checked here.
    """
    suffix = Path(source).suffix.lower()
    if suffix in (".json", ".toml"):
        return job_from_plain(_read(Path(source), suffix), source)
    if ":" not in source:
        raise WorkflowError(f"{source}: expected a file *.json or *.toml, or package.module:attribute")
    found = resolve(source, "job")
    if not isinstance(found, Job) and callable(found):
        found = found()
    if not isinstance(found, Job):
        raise WorkflowError(
            f"{source}: expected a Job or a function that makes one, found a {type(found).__name__}"
        )
    return found


def _read(path: Path, suffix: str) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkflowError(f"{path}: cannot be read: {error}") from error
    try:
        return (
            tomllib.loads(text) if suffix == ".toml" else json.loads(text, object_pairs_hook=_without_doubles)
        )
    except ValueError as error:
        raise WorkflowError(f"{path}: {error}") from error
    except RecursionError as error:
        raise WorkflowError(f"{path}: nested too deep for a job") from error


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that stands twice. JSON lets the last one win, which hides a slip; TOML does not."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"{', '.join(map(repr, twice))} stands twice in one map")
    return found
