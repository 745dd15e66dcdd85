"""What only Linux has is looked for before it is used. These tests pretend to be on macOS, which is for development."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib.util
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from zraft.config import knobs
from zraft.program import parent_death
from zraft.server.operators import environment, report
from zraft.server.process import client_protocol, node
from zraft.storage import filesystem
from zraft.storage.durable import reserve
from zraft.storage.filesystem import RealFileSystem, UnsyncedFileSystem

F_FULLFSYNC = 51
MACOS_DATAGRAM_BYTES_MAX = 9_216


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    opened = RealFileSystem().create(str(tmp_path / "file"))
    yield opened
    RealFileSystem().close(opened)


@pytest.fixture
def macos_syncs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The system calls that make files durable, on a system that has no fdatasync."""
    calls: list[tuple[str, int]] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(filesystem, "SYNCS_DATA", False)
    monkeypatch.setattr(os, "fsync", lambda file: calls.append(("fsync", file)))
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda file, _: calls.append(("full", file)))
    return calls


def test_without_fdatasync_a_full_sync_makes_files_and_names_durable(
    macos_syncs: list[tuple[str, int]], file: int, tmp_path: Path
) -> None:
    RealFileSystem().fdatasync(file)
    RealFileSystem().fsync_directory(str(tmp_path))
    assert [call for call, _ in macos_syncs] == ["full", "full"]


def test_where_there_is_no_full_sync_there_is_fsync(
    macos_syncs: list[tuple[str, int]], file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(fcntl, "F_FULLFSYNC")
    RealFileSystem().fdatasync(file)
    assert macos_syncs == [("fsync", file)]


@pytest.mark.parametrize(("error", "falls_back"), [(errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_file_system_that_knows_no_full_sync_is_synced_and_a_failed_one_is_an_error(
    macos_syncs: list[tuple[str, int]],
    file: int,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    falls_back: bool,
) -> None:
    def refuse(_file: int, _command: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    if falls_back:
        RealFileSystem().fdatasync(file)
        assert macos_syncs == [("fsync", file)]
    else:
        with pytest.raises(OSError, match=os.strerror(error)):
            RealFileSystem().fdatasync(file)
        assert macos_syncs == []


def test_without_posix_fallocate_no_space_is_reserved_and_the_caller_is_told(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reserve(RealFileSystem(), file, 4_096)
    monkeypatch.delattr(os, "posix_fallocate")
    assert not reserve(RealFileSystem(), file, 8_192)


def test_only_files_that_nobody_relies_on_are_not_synced(
    macos_syncs: list[tuple[str, int]], file: int, tmp_path: Path
) -> None:
    UnsyncedFileSystem().fdatasync(file)
    UnsyncedFileSystem().fsync_directory(str(tmp_path))
    assert macos_syncs == []


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_datagrams_on_loopback_are_as_large_as_the_system_lets_them_be(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    local = {"id": 1, "data": "d", "address": "127.0.0.1:2181", "cluster": "1=127.0.0.1:2181"}
    found = _again(knobs)["load_config"](flags=local, environ={}).peer.datagram_bytes
    assert found == 60_000 if platform == "linux" else 1_400 < found <= MACOS_DATAGRAM_BYTES_MAX


def test_the_clock_counts_sleep_by_the_name_that_the_system_has_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert time.CLOCK_BOOTTIME == node.CLOCK
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert _again(node)["CLOCK"] == time.CLOCK_MONOTONIC


def test_idle_connections_are_looked_after_by_the_options_that_the_system_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {option for level, option, _ in client_protocol.KEEP_ALIVE if level == socket.IPPROTO_TCP}
    assert names == {socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT}
    monkeypatch.delattr(socket, "TCP_KEEPIDLE")
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", 16, raising=False)
    assert (socket.IPPROTO_TCP, 16, 30) in _again(client_protocol)["KEEP_ALIVE"]


def _again(module: ModuleType) -> dict[str, Any]:
    """The names of a module that is executed once more, beside the one that everybody has imported."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    return vars(again)


def test_what_a_system_does_not_tell_of_its_processors_and_memory_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "sysconf_names", {"SC_PAGE_SIZE": 30, "SC_PHYS_PAGES": 85})
    assert dict(environment.environment())["os.processors"] == str(os.cpu_count())
    assert [name for name, _ in environment.memory()] == ["os.memory.max", "os.memory.total"]


def test_open_files_are_counted_where_the_system_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert report._open_files() > 2
    monkeypatch.setattr(report, "DESCRIPTORS", ("/no/such/directory", "/dev/fd"))
    assert report._open_files() > 2


def test_a_limit_of_open_files_that_the_system_only_claims_to_allow_is_not_insisted_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [256, resource.RLIM_INFINITY]

    def set_limit(_: int, wanted: tuple[int, int]) -> None:
        if wanted[0] == resource.RLIM_INFINITY or wanted[0] > node.OPEN_FILES_MACOS:
            raise ValueError("current limit exceeds maximum limit")
        limits[0] = wanted[0]

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    node._raise_file_limit()
    assert limits[0] == node.OPEN_FILES_MACOS


def test_without_prctl_no_child_is_asked_to_die_with_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "PyDLL", lambda _: object())
    assert parent_death.dies_with_parent() is None
