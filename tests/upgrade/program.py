"""A program of a user: znodes, a dictionary, a topic. It runs with the client of either release.

    python program.py HOST:PORT

It imports nothing but what both releases have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from zraft_client import BadVersionError, BlockingClient, DistributedDict, NoNodeError
from zraft_client.topics import BlockingTopics

MESSAGES = 20


def main(hosts: str) -> None:
    with BlockingClient(hosts, timeout_s=60.0) as client:
        client.create("/settings", b"one")
        client.set("/settings", b"two", version=0)
        assert client.read("/settings").data == b"two"
        assert refused(lambda: client.set("/settings", b"three", version=0), BadVersionError)
        assert refused(lambda: client.read("/absent"), NoNodeError)
        client.create("/settings/holder", b"", ephemeral=True)
        assert client.children("/settings").names == ("holder",)

        host, _, port = hosts.partition(":")
        with DistributedDict(host, int(port)) as visits:
            for _ in range(3):
                visits.increment("anna")
            assert visits["anna"] == 3

        with BlockingTopics(client) as topics:
            topics.ensure("orders", partitions=2)
            topics.ensure("audit")
            with topics.producer() as producer:
                for number in range(MESSAGES):
                    producer.send(["orders", "audit"], b"%d" % number, key=b"customer")
            found: list[bytes] = []
            with topics.consumer("audit", name="reader") as consumer:
                while len(found) < MESSAGES:
                    found += [record.value for record in consumer.poll(timeout_s=30)]
                consumer.commit()
            assert found == [b"%d" % number for number in range(MESSAGES)]
    print("done")


def refused(call: Callable[[], object], error: type[Exception]) -> bool:
    try:
        call()
    except error:
        return True
    return False


if __name__ == "__main__":
    main(sys.argv[1])
