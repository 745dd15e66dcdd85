"""A consumer that shares a topic's partitions, as a process of its own, which may be killed or stopped at any moment.

Run as `python -m tests.processes.claims_consumer`. It journals what it is given and what it has processed; SIGTERM makes it
release its claims and end.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import time

from tests.topic_chaos.claims import done_line, durable_line, handed_line
from zraft_client import Client
from zraft_client.claims import ClaimLostError, ConsumerOptions, Marshaler
from zraft_client.topics import Topics
from zraft_core.claims.values import Mode

PATIENT_S = 300.0
WORKERS = 4


async def main(arguments: argparse.Namespace, descriptor: int) -> None:
    def write(line: str) -> None:
        os.write(descriptor, line.encode() + b"\n")

    options = ConsumerOptions(
        mode=Mode(arguments.mode),
        claim_interval_ms=300,
        poll_ms=50,
        queue_max=arguments.queue_max,
        batch_messages=20,
        heartbeat_ms=arguments.heartbeat_ms,
        release_claims_if_behind=False,
    )
    rng = random.Random(arguments.client)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with Client(arguments.hosts, timeout_s=PATIENT_S) as client, Topics(client) as topics:
        marshaler = Marshaler(topics.claims_port(), arguments.client, arguments.group)
        consumer = marshaler.consumer([arguments.topic], options)
        async with consumer:
            write(f"# started {consumer.identity.instance}")

            async def consume() -> None:
                async for message in consumer.consume():
                    place = (message.partition, message.offset, message.epoch)
                    write(handed_line(*place, time.monotonic_ns()))
                    await asyncio.sleep(rng.expovariate(1_000 / arguments.work_ms))
                    write(done_line(*place, time.monotonic_ns()))
                    try:
                        await consumer.commit(message)
                        write(durable_line(*place, time.monotonic_ns()))
                    except ClaimLostError:
                        write(f"# lost {place}")

            async def consume_all() -> None:
                """Several at a time, so that commits come out of order."""
                await asyncio.gather(*(consume() for _ in range(WORKERS)))

            consuming = asyncio.ensure_future(consume_all())
            waiting = asyncio.ensure_future(stopping.wait())
            await asyncio.wait((consuming, waiting), return_when=asyncio.FIRST_COMPLETED)
            if consuming.done():
                consuming.result()
            await consumer.terminate(release=True)
            consuming.cancel()
            waiting.cancel()
            await asyncio.gather(consuming, waiting, return_exceptions=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("hosts", "client", "group", "topic", "journal"):
        parser.add_argument(f"--{name}", required=True)
    for name, default in (("mode", 0), ("queue-max", 50), ("heartbeat-ms", 2_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--work-ms", type=float, default=1.0)
    return parser.parse_args()


if __name__ == "__main__":
    given = parsed()
    opened = os.open(given.journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    asyncio.run(main(given, opened))
