"""Java is found where it is, and what is missing is said with what to do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from onyxlog.audits.errors import AuditError
from onyxlog.audits.java import find_java, parse_version, wrapper_script


def java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("nothing", None),
    ],
)
def test_the_major_version_is_read(said: str, version: int | None) -> None:
    assert parse_version(said) == version


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    home, other = java(tmp_path / "home", "21.0.1"), java(tmp_path / "other", "17.0.1")
    path = f"{other / 'bin'}:{os.environ['PATH']}"
    assert find_java({"JAVA_HOME": str(home), "PATH": path}).version == 21
    found = find_java({"PATH": path})
    assert (found.home, found.version, found.source) == (str(other), 17, "PATH")


def test_a_java_home_that_is_too_old_or_empty_is_refused_with_its_name(tmp_path: Path) -> None:
    old = java(tmp_path / "old", "11.0.2")
    with pytest.raises(
        AuditError, match=r"old is Java 11, Spark needs 17 .*pip install 'zraft\[audits-java\]'"
    ):
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(AuditError, match="nowhere/bin/java does not run"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": ""})


def test_no_java_at_all_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onyxlog.audits.java._packaged", lambda: None)
    with pytest.raises(AuditError, match=r"none is on the PATH.*apt install"):
        find_java({"PATH": str(tmp_path)})
    old = java(tmp_path / "old", "11.0.2")
    with pytest.raises(AuditError, match="is Java 11"):
        find_java({"PATH": f"{old / 'bin'}:{os.environ['PATH']}"})


def test_the_wrapper_leaves_out_the_module_that_a_small_jre_lacks_and_nothing_else(tmp_path: Path) -> None:
    real = tmp_path / "it's java"
    real.write_text('#!/bin/sh\nfor one in "$@"; do echo "<$one>"; done\n')
    real.chmod(0o755)
    wrapper = tmp_path / "java"
    wrapper.write_text(wrapper_script(str(real)))
    wrapper.chmod(0o755)
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "-Dx='$y'", "Main", "*"]
    said = subprocess.run([wrapper, *given], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [f"<{one}>" for one in given if one != "--add-modules=jdk.incubator.vector"]
