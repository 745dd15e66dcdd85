"""The recording client of chaos runs: what it counts, and what it makes of answers that cannot be."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.client import Client
from tests.chaos.run import _mistakes
from tests.so_far import so_far
from zraft.checkers.history import Disconnected, Kind, Operation, Outcome


def client() -> Client:
    return Client(7, {}, random.Random(1), 4_000)


def operation(outcome: Outcome) -> Operation:
    return Operation(
        client=7,
        session=1,
        server=1,
        kind=Kind.SET,
        path="/a",
        invoked_us=1,
        returned_us=None if outcome is Outcome.UNKNOWN else 2,
        outcome=outcome,
    )


def test_answers_are_counted_as_they_come() -> None:
    """Whoever asks all the time how many there are must not go through hundreds of thousands of records for it.

    The run, its clients and the network between the servers share one loop: counting for as long as an election takes
    delayed every datagram by as much, and no leader lasted.
    """
    one = client()
    for outcome in (Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN):
        one.record(operation(outcome))
    one.record(Disconnected(client=7, session=1, server=1, at_us=3))
    assert one.answered == 2
    assert len(one.records) == 4


async def test_bytes_that_are_no_answer_end_the_connection_and_are_remembered() -> None:
    """Not only the task that reads: the client would wait for ever on a connection that nobody reads."""
    one = client()
    reader = asyncio.StreamReader()
    one._reader = reader
    reader.feed_data(b"\xff" * 64)  # a frame of -1 bytes
    reader.feed_eof()
    await one._read(reader)
    assert so_far(one._reader) is None, "it still holds on to the connection"
    assert len(one.mistakes) == 1
    assert one.mistakes[0].startswith("client 7, session 0, of server 0: ")


def test_a_client_that_ends_by_an_error_is_a_violation_and_one_that_was_cancelled_is_none() -> None:
    workers: Any = [SimpleNamespace(client=client()) for _ in range(3)]
    workers[0].client.mistakes.append("client 7: rubbish")
    found = _mistakes(workers, [None, RuntimeError("handler is closed"), asyncio.CancelledError()])
    assert [violation.checker for violation in found] == ["protocol", "progress"]
    assert "handler is closed" in found[1].found


async def test_a_session_that_was_left_is_asked_after_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends while its client is away would not know that the session expired, and see its lock held twice."""
    asked: list[int] = []

    async def connect(one: Client, only: int | None = None) -> None:
        asked.append(one.session)

    monkeypatch.setattr(Client, "connect", connect)
    left, never = client(), client()
    left.session = 5
    for one in (left, never):
        await one.settle()
    assert asked == [5]
