"""The preloaded shim does to a Python process what it says: disk, space and wall clock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.shim import Control, build, compiler

SCRIPT = """
import os, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
def attempt(call):
    try:
        call()
        return "ok"
    except OSError as error:
        return error.strerror
began = time.monotonic()
print(attempt(lambda: os.fdatasync(file)), attempt(lambda: os.fsync(file)))
print(time.monotonic() - began)
print(attempt(lambda: os.posix_fallocate(file, 0, 4096)), attempt(lambda: os.pwrite(file, b"x", 0)))
print(time.time())
"""


@pytest.fixture
def control(tmp_path: Path) -> Control:
    assert compiler() is not None, "the tests of the shim need a C compiler (cc, gcc or clang)"
    return Control(build(tmp_path), tmp_path / "control")


def run(control: Control, tmp_path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "data")],
        env={**os.environ, **control.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_shim_at_rest_changes_nothing_and_counts_syncs(control: Control, tmp_path: Path) -> None:
    syncs, _, space, wall = run(control, tmp_path)
    assert (syncs, space) == ("ok ok", "ok ok")
    assert abs(float(wall) - time.time()) < 60
    assert control.syncs >= 2


def test_syncs_fail_with_eio(control: Control, tmp_path: Path) -> None:
    control.fail_sync(True)
    assert run(control, tmp_path)[0] == "Input/output error Input/output error"
    control.heal()
    assert run(control, tmp_path)[0] == "ok ok"


def test_syncs_take_their_time(control: Control, tmp_path: Path) -> None:
    control.delay_sync(0.1)
    assert float(run(control, tmp_path)[1]) >= 0.2


def test_a_full_disk_has_no_space_for_writes_and_allocation(control: Control, tmp_path: Path) -> None:
    control.fill_disk(True)
    assert run(control, tmp_path)[2] == "No space left on device No space left on device"


def test_the_wall_clock_jumps_and_the_monotonic_clock_does_not(control: Control, tmp_path: Path) -> None:
    control.shift_wall_clock(-86_400)
    _, took, _, wall = run(control, tmp_path)
    assert abs(float(wall) + 86_400 - time.time()) < 60
    assert 0 <= float(took) < 60
