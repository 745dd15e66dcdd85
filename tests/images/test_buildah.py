"""Builds find what pip finds outside, and the service is found below what holds its container."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.images.buildah import innermost, pip_settings


def test_a_build_gets_the_settings_of_pip_and_the_files_that_they_name(tmp_path: Path) -> None:
    (tmp_path / "authority.pem").touch()
    (tmp_path / "mirror" / "simple").mkdir(parents=True)
    listed = (
        f":env:.cert='{tmp_path}/authority.pem'\n"
        "global.cert='/from/a/file/and/overruled.pem'\n"
        f"global.extra-index-url='https://example.org/simple file://{tmp_path}/mirror/simple\\nfile:///not/there/simple'\n"
        "install.no-binary=':none:'\n"
        "list.format='json'\n"
    )
    found = pip_settings(listed, {})
    assert found.text == (
        "[global]\n"
        f"cert = {tmp_path}/authority.pem\n"
        f"extra-index-url = https://example.org/simple file://{tmp_path}/mirror/simple file:///not/there/simple\n"
        "no-binary = :none:\n"
    )
    assert found.paths == (tmp_path / "authority.pem", tmp_path / "mirror")


def test_an_authority_that_only_other_programs_are_told_of_is_given_to_pip_as_well(tmp_path: Path) -> None:
    authority = tmp_path / "authority.pem"
    authority.touch()
    found = pip_settings("", {"REQUESTS_CA_BUNDLE": str(authority)})
    assert found.text == f"[global]\ncert = {authority}\n"
    assert found.paths == (authority,)


def test_without_settings_nothing_is_lent() -> None:
    assert pip_settings("", {}).paths == ()


def test_the_service_is_the_innermost_process_of_those_that_hold_it() -> None:
    held = ["sh", "-c", "sh -c 'cat; true'; true"]
    with subprocess.Popen(held, stdin=subprocess.PIPE) as outer:
        deadline = time.monotonic() + 30
        while Path(f"/proc/{innermost(outer.pid)}/comm").read_text() != "cat\n":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert innermost(outer.pid) != outer.pid
