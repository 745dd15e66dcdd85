"""One process of a load generator: told what to do by lines of JSON on its standard input, answers by lines on its output.

    -> {"workload": …, "share": …, "target": "zraft", "hosts": "…", "place": "…", "connections": 1}
    <- {"ready": true}                      connected, keys made, warmed up
    -> {"start": offset in s}
    <- {"began": monotonic time in s}
    <- {"part": …}
    -> {"finish": true}                     if others are to find the servers as this one did
    <- {"finished": true}
Anything that goes wrong is answered by {"error": text}. The end of the input ends it: nobody waits for what it would
still see. Run as `python -m zraft_bench.load.process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import IO, Any, Final

from attrs import frozen

from zraft_bench.load.sessions import SessionLoad
from zraft_bench.load.workers import Load
from zraft_bench.load.workload import Share, Workload
from zraft_bench.records import from_plain, to_plain
from zraft_bench.targets.target import in_turn, maker
from zraft_core.errors import ZraftError

LINE_BYTES_MAX: Final = 16 * 1024 * 1024
CLOSE_S: Final = 2.0
"""Seconds to close connections to servers, which may have ended before."""


@frozen(kw_only=True)
class Order:
    """Orders for one load process."""

    target: str
    hosts: str
    place: str
    workload: Workload
    share: Share
    connections: int = 1


async def serve(lines: asyncio.StreamReader, output: IO[bytes]) -> None:
    """Carry out one order."""

    def say(**message: Any) -> None:
        output.write(json.dumps(message).encode() + b"\n")
        output.flush()

    load: Load | SessionLoad | None = None
    try:
        load = _load_of(from_plain(Order, json.loads(await lines.readline()), "order"))
        await load.prepare()
        say(ready=True)
        line = await lines.readline()
        if not line:
            return  # the test was given up
        # Objects made until here live to the end; a full collection in the measured time would show as a
        # stall.
        gc.collect()
        gc.freeze()
        await asyncio.sleep(json.loads(line)["start"])
        say(began=time.monotonic())
        part = await load.run()
        say(part=to_plain(part))
        if await lines.readline():
            await load.finish()
            say(finished=True)
    except (ZraftError, OSError) as error:
        say(error=f"{type(error).__name__}: {error}")
    finally:
        if load is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await load.close()


def _load_of(order: Order) -> Load | SessionLoad:
    workload, share = order.workload, order.share
    if workload.under_way is not None:
        return SessionLoad(workload, share, order.hosts, order.place)
    make = maker(order.target)
    hosts = in_turn(order.hosts, share.first_worker)  # processes begin at different servers, too
    return Load(
        workload,
        share,
        [
            make(hosts, order.place, workload.linearizable, workload.deadline_s)
            for _ in range(max(1, min(order.connections, share.workers)))
        ],
    )


class _Input(asyncio.StreamReaderProtocol):
    """Notices the end of its input at once, not only when somebody reads: reading does not interrupt a test."""

    def __init__(self, reader: asyncio.StreamReader, on_end: Callable[[], object]) -> None:
        super().__init__(reader)
        self._on_end = on_end

    def eof_received(self) -> bool | None:
        self._on_end()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()
        super().connection_lost(exc)


Serve = Callable[[asyncio.StreamReader, IO[bytes]], Coroutine[Any, Any, None]]


async def _main(serve: Serve) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    serving = loop.create_task(serve(reader, sys.stdout.buffer))
    await loop.connect_read_pipe(lambda: _Input(reader, serving.cancel), sys.stdin)
    with contextlib.suppress(BrokenPipeError, asyncio.CancelledError):
        await serving


def run_on_pipes(serve: Serve) -> None:
    """Run `serve` with this process' standard input and output; the end of the input cancels it."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(serve))


if __name__ == "__main__":
    run_on_pipes(serve)
