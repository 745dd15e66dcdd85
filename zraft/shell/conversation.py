"""Conversation of a command: its requests to the server, and what it shows.

Values only, no I/O.

A command is a generator of `Step`s. It gets the replies to its requests, and nothing for the rest, so it runs
the same over a socket and over a list of replies in a test.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from enum import Enum
from typing import Any, TypeVar, cast

from attrs import frozen

from zraft.shell.errors import RefusedError
from zraft_core.wire.client import Reply
from zraft_core.wire.client_requests import (
    Request,
)
from zraft_core.znodes.events import WatcherType

T = TypeVar("T")


class TextKind(Enum):
    """Kinds of texts, from which their colours are chosen."""

    PLAIN = "plain"
    NAMES = "names"
    STAT = "stat"
    NOTE = "note"


@frozen
class Output:
    """One result: texts for people, in order, and one value for `--json`."""

    value: Any
    parts: tuple[tuple[TextKind, str], ...]


@frozen
class Ask:
    """Send these requests together; the answer is one `Reply` for each, in order."""

    requests: tuple[Request[Any], ...]


@frozen
class ForgetWatches:
    """Drop watches here without asking the server."""

    path: str
    type: WatcherType


Step = Ask | Output | ForgetWatches
Conversation = Generator[Step, Sequence[Reply], None]


def ask(request: Request[T], path: str | None = None) -> Generator[Step, Sequence[Reply], T]:
    """Return the value of one answer.

    Raises:
        RefusedError: the server answered with an error; `path` is named instead of the request's own.
    """
    (reply,) = yield Ask((request,))
    return checked(request, reply, path)


def checked(request: Request[T], reply: Reply, path: str | None = None) -> T:
    """Return the value of `reply`.

    Raises:
        RefusedError: it is an error.
    """
    if reply.code:
        raise RefusedError(reply.code, path or getattr(request, "path", None))
    return cast(T, reply.value)


def ask_each(requests: Iterable[Request[Any]]) -> Generator[Step, Sequence[Reply], Sequence[Reply]]:
    """Return all answers, errors among them; this takes one round trip, or none without requests."""
    together = tuple(requests)
    return (yield Ask(together)) if together else ()


def plain(text: str, value: Any) -> Output:
    """Return an output of plain text."""
    return Output(value, ((TextKind.PLAIN, text),))


def note(text: str, value: Any = None) -> Output:
    """Return an output about what was done, which is no part of the result."""
    return Output(value, ((TextKind.NOTE, text),))
