"""A topic: orders are produced, also to two topics at once, and consumed from where the last run stopped.

python orders.py [HOST:PORT,…]
"""

import asyncio
import sys

from zraft_client import Client
from zraft_client.topics import Start, Topics

HOSTS = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
ORDERS = 100


async def produce(topics: Topics) -> None:
    async with topics.producer() as producer:
        sent = [
            await producer.send_soon("example-orders", b"%d pots of tea" % n, key=b"customer %d" % (n % 7))
            for n in range(ORDERS)
        ]
        for one in sent:
            await one
        # Both topics have it, or none.
        await producer.send(["example-orders", "example-audit"], b"closed for today", key=b"shop")


async def consume(topics: Topics) -> list[bytes]:
    """Return what came since the last run, as soon as that is everything of this run."""
    found: list[bytes] = []
    async with topics.consumer("example-orders", name="kitchen", start=Start.STORED) as consumer:
        while len(found) < ORDERS + 1:
            found += [record.value for record in await consumer.poll(5)]
        await consumer.commit()
    return found


async def main(hosts: str = HOSTS) -> None:
    async with Client(hosts) as client, Topics(client) as topics:
        await topics.ensure("example-orders", partitions=3)
        await topics.ensure("example-audit")
        await produce(topics)
        found = await consume(topics)
        assert b"closed for today" in found
        print(f"{len(found) - 1} orders came")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
