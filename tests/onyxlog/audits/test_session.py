"""What a session ships and where its tasks look for our packages; without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onyxlog.audits import session
from onyxlog.audits.errors import AuditError


def test_the_archive_holds_all_that_tasks_import(tmp_path: Path) -> None:
    archive = session.packed(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import onyxlog.audits.source.plan, zraft.storage.wal;"
        "print(*(module.__file__ for name, module in sys.modules.items() if name.startswith(('onyxlog', 'zraft'))))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(archive)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    files = said.stdout.split()
    assert len(files) > 50
    assert [file for file in files if not file.startswith(str(archive))] == []


def test_java_compiles_for_a_short_run_in_brief_sessions_alone(tmp_path: Path) -> None:
    logging = tmp_path / "log4j2.properties"
    lasting = session.java_options(session.SessionSettings(), logging)
    assert lasting == f"-Dlog4j2.configurationFile=file://{logging}"
    assert (
        session.java_options(session.SessionSettings(brief=True), logging)
        == f"{lasting} -XX:TieredStopAtLevel=1"
    )


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "SHIPPED", ("onyxlog", "no_such_package"))
    with pytest.raises(AuditError, match="no_such_package"):
        session.packed(tmp_path)
