"""What systemd is told: that a server is ready when it listens, what it does, and that it stops; it is never waited for."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import structlog

from tests.unit.server.nodes import Nodes
from zraft.server.process.node import _condition
from zraft.server.process.service_manager import (
    READY,
    STATUS_CHARACTERS_MAX,
    STOPPING,
    VARIABLE,
    ServiceManager,
    service_manager,
)


@pytest.fixture
def place() -> Iterator[str]:
    """A path that is short enough for a socket."""
    with tempfile.TemporaryDirectory() as directory:
        yield f"{directory}/notify"


@pytest.fixture
def receiver(place: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(place)
        one.setblocking(False)
        yield one


@pytest.fixture
def manager(place: str) -> Iterator[ServiceManager]:
    with closing(ServiceManager(place)) as one:
        yield one


def received(receiver: socket.socket) -> list[bytes]:
    found = []
    while True:
        try:
            found.append(receiver.recv(4_096))
        except BlockingIOError:
            return found


def test_a_change_is_told_once_and_what_did_not_change_is_not_told(
    place: str, receiver: socket.socket
) -> None:
    manager = ServiceManager(place)
    for status in ("not serving", "not serving", "serving"):
        manager.tell(READY, status)
    manager.tell(STOPPING, "stopping")
    assert received(receiver) == [
        b"READY=1\nSTATUS=not serving\n",
        b"READY=1\nSTATUS=serving\n",
        b"STOPPING=1\nSTATUS=stopping\n",
    ]
    manager.close()
    manager.tell(READY, "again")
    assert received(receiver) == []


def test_a_status_is_one_short_line(place: str, receiver: socket.socket) -> None:
    manager = ServiceManager(place)
    manager.tell(READY, "one\nMAINPID=1\n" + "x" * 10_000)
    (message,) = received(receiver)
    assert message.startswith(b"READY=1\nSTATUS=one MAINPID=1 xxx")
    assert message.count(b"\n") == 2
    assert len(message) <= STATUS_CHARACTERS_MAX + 20
    manager.close()


def test_what_a_full_socket_does_not_take_is_told_later(place: str, receiver: socket.socket) -> None:
    manager = ServiceManager(place)
    sent = 0
    while manager._told.endswith(b"%d\n" % sent) or not sent:
        sent += 1
        manager.tell(READY, f"{sent}")
        assert sent < 10_000
    assert len(received(receiver)) == sent - 1
    manager.tell(READY, f"{sent}")
    assert received(receiver) == [b"READY=1\nSTATUS=%d\n" % sent]
    manager.close()


def test_a_manager_that_is_gone_is_logged_once_and_not_tried_again(place: str) -> None:
    manager = ServiceManager(place)
    with structlog.testing.capture_logs() as logs:
        for status in ("one", "two"):
            manager.tell(READY, status)
    assert [one["error"] for one in logs] == [f"[Errno {errno.ENOENT}] No such file or directory"]


def test_a_path_and_an_abstract_name_are_understood_and_nothing_else() -> None:
    assert service_manager({}) is None
    with structlog.testing.capture_logs() as logs:
        assert service_manager({VARIABLE: "vsock:2:1234"}) is None
    assert [one["found"] for one in logs] == ["vsock:2:1234"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract:
        abstract.bind("")  # the kernel chooses an abstract name
        abstract.setblocking(False)
        manager = service_manager({VARIABLE: "@" + abstract.getsockname()[1:].decode()})
        assert manager is not None
        manager.tell(READY, "serving")
        assert received(abstract) == [b"READY=1\nSTATUS=serving\n"]
        manager.close()


def test_the_status_says_what_is_missing_or_who_leads() -> None:
    assert _condition(["the disk is full", "no leader"], 2, 1) == "not serving: the disk is full"
    assert _condition([], 1, 1) == "serving, as the leader"
    assert _condition([], 2, 1) == "serving, server 2 leads"
    assert _condition([], None, 1) == "serving, no leader is known at this moment"


async def test_a_server_is_ready_when_it_listens_serves_later_and_tells_that_it_stops(
    tmp_path: Path, manager: ServiceManager, receiver: socket.socket
) -> None:
    nodes = Nodes(tmp_path, 2)
    told: list[bytes] = []

    async def until(text: bytes) -> None:
        async with asyncio.timeout(30):
            while not any(text in one for one in told):
                told.extend(received(receiver))
                await asyncio.sleep(0.01)

    nodes.start(1, manager=manager)
    await until(
        b"not serving"
    )  # alone it is ready and does not serve: the other server may be started after it
    assert told[0].startswith(b"READY=1\nSTATUS=not serving: ")
    nodes.start(2)
    await until(b"=serving, ")
    await nodes.stop(1)
    told.extend(received(receiver))
    assert told[-1] == b"STOPPING=1\nSTATUS=stopping\n"
    assert all(one.startswith(b"READY=1\n") for one in told[:-1])
    await nodes.stop(2)


async def test_a_server_that_systemd_reloads_goes_on_though_it_has_no_file_to_read_again(
    tmp_path: Path, manager: ServiceManager, receiver: socket.socket
) -> None:
    """`systemctl reload` sends SIGHUP, which ends a process that does not handle it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    nodes = Nodes(tmp_path, 1)
    nodes.start(1, manager=manager)
    await nodes.until(lambda: received(receiver))
    handled = signal.getsignal(signal.SIGHUP)
    await nodes.stop(1)
    signal.signal(signal.SIGHUP, before)
    assert handled is not signal.SIG_DFL
