"""Runs a command's conversation against a written list of what is asked and what is answered, no socket involved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from zraft.shell.catalogue import spec_of
from zraft.shell.commands import COMMANDS, Context
from zraft.shell.conversation import Ask, ForgetWatches, Output
from zraft.shell.grammar import parse
from zraft.shell.words import split
from zraft_core.errors import Code
from zraft_core.wire.client import Reply
from zraft_core.wire.client_requests import Request
from zraft_core.znodes.stat import Stat

Exchange = tuple[Request[Any], Any]
"""A request and its answer: a `Code` that is an error, an exception that the client raises, or a value."""

STAT = Stat(
    czxid=2,
    mzxid=3,
    ctime=0,
    mtime=1_700_000_000_000,
    version=4,
    cversion=5,
    aversion=6,
    ephemeral_owner=-1,
    data_length=7,
    num_children=8,
    pzxid=9,
)
STAT_TEXT = """\
cZxid = 0x2
ctime = Thu Jan 01 00:00:00 UTC 1970
mZxid = 0x3
mtime = Tue Nov 14 22:13:20 UTC 2023
pZxid = 0x9
cversion = 5
dataVersion = 4
aclVersion = 6
ephemeralOwner = 0xffffffffffffffff
dataLength = 7
numChildren = 8"""


class Talk:
    """What came of one line: outputs in order, batches of requests, watches forgotten, and the error if any."""

    def __init__(self, line: str, *exchanges: Exchange, files: dict[str, str] | None = None) -> None:
        words = split(line)
        context = Context(zone=UTC, read_file=(files or {}).__getitem__)
        self.outputs: list[Output] = []
        self.batches: list[int] = []
        self.forgotten: list[ForgetWatches] = []
        self.error: Exception | None = None
        self._left = list(exchanges)
        try:
            self._run(COMMANDS[words[0]](parse(spec_of(words[0]), words[1:]), context))
        except StopIteration:
            pass
        except Exception as error:
            self.error = error
        assert not self._left, f"never asked: {self._left}"

    def _run(self, conversation: Any) -> None:
        step = next(conversation)
        while True:
            match step:
                case Output():
                    self.outputs.append(step)
                    step = conversation.send(())
                case ForgetWatches():
                    self.forgotten.append(step)
                    step = conversation.send(())
                case Ask(requests):
                    self.batches.append(len(requests))
                    answers = [self._answer(request) for request in requests]
                    failures = [answer for answer in answers if isinstance(answer, Exception)]
                    step = conversation.throw(failures[0]) if failures else conversation.send(answers)

    def _answer(self, request: Request[Any]) -> Reply | Exception:
        assert self._left, f"asked {request!r}, expected nothing more to be asked"
        expected, answer = self._left.pop(0)
        assert request == expected, f"asked {request!r}, expected {expected!r}"
        if isinstance(answer, Exception):
            return answer
        if isinstance(answer, Code) and answer:
            return Reply(1, 1, answer, None)
        return Reply(1, 1, Code.OK, None if isinstance(answer, Code) else answer)

    @property
    def text(self) -> str:
        """What a pipe would get."""
        return "\n".join(text for output in self.outputs for _, text in output.parts)

    @property
    def values(self) -> Sequence[Any]:
        """What `--json` would print."""
        return [output.value for output in self.outputs if output.value is not None]

    @property
    def succeeded(self) -> bool:
        return self.error is None
