"""A producer as a process of its own, which may be killed at any moment. Run as `python -m tests.processes.topic_producer`.

Sends bursts of records to partitions drawn by a seed, several under way at a time, and writes a journal. It ends when its
count is sent and decided; SIGTERM makes it stop sending, and end when everything is decided.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import time

from tests.topic_chaos.journal import Journal, Key, Outcome, payload_of
from zraft_client import Client, ClientError
from zraft_client.topics import NeverDeliveredError, Producer, Reach, Sent, Topics

PATIENT_S = 300.0
BURST_MAX = 3


class Sending:
    def __init__(self, arguments: argparse.Namespace, journal: Journal) -> None:
        self._name: str = arguments.name
        self._count: int = arguments.count
        self._pause_s: float = arguments.pause_ms / 1000
        self._places = [(topic, int(n)) for topic, _, n in (one.rpartition("/") for one in arguments.place)]
        self._fanout_max = min(arguments.fanout_max, len(self._places))
        self._burst_max: int = arguments.burst_max
        self._rng = random.Random(f"{arguments.seed} {arguments.name}")
        self._journal = journal
        self._number = 0
        self.stopped = False

    async def work(self, producer: Producer) -> None:
        """Called several times at once: each has one burst of records under way, which is mostly one batch."""
        while not self.stopped and self._number < self._count:
            # Half of them to one place, so that the bypass has something to do; the others to two or more.
            several = self._rng.random() < 0.5 and self._fanout_max > 1
            count = self._rng.randint(2, self._fanout_max) if several else 1
            places = self._rng.sample(self._places, count)
            under_way: list[tuple[Key, Sent]] = []
            for _ in range(self._rng.randint(1, self._burst_max)):
                # Nothing else runs between the number and the call: records are in the order of their numbers.
                key = Key(self._name, self._number)
                self._number += 1
                self._journal.sending(key, places, time.monotonic_ns())
                under_way.append((key, await producer.send_soon(places, payload_of(key))))
            for key, sent in under_way:
                await self._told(key, sent)
            if self._pause_s:
                await asyncio.sleep(self._rng.uniform(0, 2 * self._pause_s))

    async def _told(self, key: Key, sent: Sent) -> None:
        """Write down what became of a record."""
        try:
            await sent
        except NeverDeliveredError:
            self._journal.told(key, Outcome.NEVER, time.monotonic_ns())
        except ClientError as error:
            self._journal.note(f"{key}: {error!r}")
            raise
        else:
            self._journal.told(key, Outcome.DELIVERED, time.monotonic_ns())


async def main(arguments: argparse.Namespace, journal: Journal) -> None:
    sending = Sending(arguments, journal)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: setattr(sending, "stopped", True))
    async with (
        Client(arguments.hosts, timeout_s=PATIENT_S) as client,
        Topics(client) as topics,
        topics.producer(reach=Reach(arguments.reach)) as producer,
    ):
        journal.note(f"producer {producer.id}")
        async with asyncio.TaskGroup() as group:
            for _ in range(arguments.window):
                group.create_task(sending.work(producer))
    journal.note("ended")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("hosts", "name", "journal", "seed"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--place", action="append", required=True)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--window", type=int, default=8)
    parser.add_argument("--fanout-max", type=int, default=5)
    parser.add_argument("--burst-max", type=int, default=BURST_MAX, help="records that a burst has at most")
    parser.add_argument("--pause-ms", type=float, default=0.0)
    parser.add_argument("--reach", default=Reach.ALL.value)
    return parser.parse_args()


if __name__ == "__main__":
    given = parsed()
    descriptor = os.open(given.journal, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    asyncio.run(main(given, Journal(descriptor)))
