"""One load process of multicast: told what to do by lines of JSON on its standard input, answers by lines on its output.

    -> {"hosts": …, "cell": …, "nonce": …, "prefix": …, "producers": [0, 1], "places": [0, 3]}
    <- {"ready": true}                      connected, producers registered, consumers at the beginning of their logs
    -> {"start": offset in s}
    <- {"began": monotonic time in s}
    <- {"produced": …}                      its producers are done, or have failed
    -> {"sent": [messages of each producer of the cell]}
    <- {"consumed": …, "logs": […]}         its consumers have all of it, or never will
Anything that goes wrong is answered by {"error": text}. The end of the input ends it. Run as
`python -m zraft_bench.multicast.process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
from collections.abc import AsyncIterator
from typing import IO, Any, Final

from attrs import frozen

from zraft_bench.load.process import run_on_pipes
from zraft_bench.multicast.checks import LogSummary
from zraft_bench.multicast.client import TopicsClient
from zraft_bench.multicast.load import Consuming, Producing, Reader, Sender
from zraft_bench.multicast.log_client import LogClient
from zraft_bench.multicast.plan import Cell
from zraft_bench.multicast.results import Consumed
from zraft_bench.records import from_plain, to_plain
from zraft_core.errors import ZraftError

TOPICS: Final = "topics"
LOG: Final = "log"


@frozen(kw_only=True)
class MulticastOrder:
    """Orders for one process: which producers of the cell it has, and whose logs it reads.

    Topics are named `prefix` and their number. `target` is "topics", or "log": a log of znodes.
    """

    hosts: str
    cell: Cell
    nonce: int
    prefix: str
    producers: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    target: str = TOPICS


async def serve(lines: asyncio.StreamReader, output: IO[bytes]) -> None:
    """Carry out one order."""

    def say(**message: Any) -> None:
        output.write(json.dumps(message).encode() + b"\n")
        output.flush()

    try:
        order = from_plain(MulticastOrder, json.loads(await lines.readline()), "order")
        async with connected(order) as (senders, reader):
            producing = Producing(order.cell, order.nonce, senders)
            consuming = Consuming(order.cell, order.nonce, order.places, reader)
            say(ready=True)
            line = await lines.readline()
            if not line:
                return  # the test was given up
            gc.collect()
            gc.freeze()
            await asyncio.sleep(json.loads(line)["start"])
            say(began=time.monotonic())
            sent: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
            reading = asyncio.ensure_future(_consume(consuming, sent, order.cell))
            try:
                say(produced=to_plain(await producing.run()))
                line = await lines.readline()
                if not line:
                    return
                sent.set_result(json.loads(line)["sent"])
                consumed, logs = await reading
            finally:
                reading.cancel()
            say(consumed={"consumed": to_plain(consumed), "logs": to_plain(logs)})
    except (ZraftError, OSError) as error:
        say(error=f"{type(error).__name__}: {error}")


async def _consume(
    consuming: Consuming, sent: asyncio.Future[list[int]], cell: Cell
) -> tuple[Consumed, list[LogSummary]]:
    if cell.reads_after:
        await asyncio.wait((sent,))
    return await consuming.run(sent)


@contextlib.asynccontextmanager
async def connected(order: MulticastOrder) -> AsyncIterator[tuple[dict[int, Sender], Reader | None]]:
    """Return the producers and the consumer of an order, each with a client of its own, as programs would have."""
    async with contextlib.AsyncExitStack() as stack:

        async def sender() -> Sender:
            if order.target == LOG:
                log = await stack.enter_async_context(log_client())
                return await stack.enter_async_context(log.sender())
            client = await stack.enter_async_context(topics_client())
            return await stack.enter_async_context(client.sender())

        async def reader() -> Reader:
            if order.target == LOG:
                log = await stack.enter_async_context(log_client())
                return await stack.enter_async_context(log.reader())
            client = await stack.enter_async_context(topics_client())
            return await stack.enter_async_context(client.reader(order.places))

        def log_client() -> LogClient:
            return LogClient(order.hosts, order.prefix, order.cell, order.nonce)

        def topics_client() -> TopicsClient:
            return TopicsClient(order.hosts, order.prefix, order.cell)

        senders = {producer: await sender() for producer in order.producers}
        yield senders, await reader() if order.places else None


if __name__ == "__main__":
    run_on_pipes(serve)
