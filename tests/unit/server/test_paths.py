"""The paths of a write and of a message, as docs/explanation/architecture.md tells them, are those that a server takes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.unit.profiled import profiled
from tests.unit.server.asker import Asker
from tests.unit.server.nodes import Nodes
from zraft_client import Client
from zraft_client.topics import Topics
from zraft_core.znodes.txn import CREATE

DOCUMENT = Path(__file__).parents[3] / "docs" / "explanation" / "architecture.md"
ROW = re.compile(r"^\| (\d+) \| `([\w.]+)` \| `([\w.]+)` \|", re.MULTILINE)
TRIES = 20


def told(title: str) -> list[str]:
    """The functions of a section's table, in order, as "module:function"."""
    section = DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = ROW.findall(section)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    return [f"{module}:{function}" for _, function, module in rows]


@contextmanager
def called() -> Iterator[list[str]]:
    """The functions of the server that are called on this thread inside the context, in order."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("zraft."):
            found.append(f"{frame.f_globals['__name__']}:{frame.f_code.co_qualname}")

    with profiled(note):
        yield found


def missing(path: list[str], calls: list[str]) -> list[str]:
    """The rest of the path from the first step on that did not come after those before it."""
    left = iter(calls)
    for place, step in enumerate(path):
        if step not in left:
            return path[place:]
    return []


async def is_taken(path: list[str], once: Callable[[], Awaitable[object]]) -> None:
    """Some try must show the path alone: an alarm may bring a turn in between that has no part in it."""
    rest = path
    for _ in range(TRIES):
        with called() as calls:
            await once()
        rest = min(rest, missing(path, calls), key=len)
    assert rest == [], "not called in this order"


async def test_a_write_takes_the_path_that_the_architecture_tells(tmp_path: Path) -> None:
    path = told("The path of a write")
    assert len(path) > 10
    async with Nodes(tmp_path, servers=1) as nodes:
        (address,) = nodes.addresses.values()
        numbers = iter(range(TRIES))
        async with Asker(address) as client:
            await is_taken(path, lambda: client.write((CREATE, f"/n{next(numbers)}", b"", None, 0, -1)))


async def test_a_message_takes_the_path_that_the_architecture_tells(tmp_path: Path) -> None:
    path = told("The path of a message to a topic")
    assert len(path) > 10
    async with Nodes(tmp_path, servers=1) as nodes:
        await nodes.create_topic("t", 1)
        (address,) = nodes.addresses.values()
        async with Client(str(address)) as client, Topics(client) as topics, topics.producer() as producer:
            await is_taken(path, lambda: producer.send(("t", 0), b"x"))
