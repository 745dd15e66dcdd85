"""kazoo, a client of ZooKeeper: a watch on settings, and a lock that two workers want.

python lock_and_watch.py [HOST:PORT,…]
"""

import sys
import threading

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

HOSTS = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"


def client_of(hosts: str) -> KazooClient:
    """A client that tries again while a server is restarted or another one takes the lead."""
    retry = KazooRetry(max_tries=-1, max_delay=1)
    client = KazooClient(hosts=hosts, timeout=10, connection_retry=retry, command_retry=retry)
    client.start()
    return client


def work(client: KazooClient, name: str, report: list[str]) -> None:
    lock = client.Lock("/examples/kazoo/lock", name)
    for _ in range(3):
        with lock:
            report.append(f"{name} begins")
            report.append(f"{name} ends")


def main(hosts: str = HOSTS) -> None:
    one, two = client_of(hosts), client_of(hosts)
    settings = "/examples/kazoo/settings"
    one.ensure_path(settings)
    seen = threading.Event()

    @two.DataWatch(settings)
    def changed(data: bytes, stat: object) -> None:
        print(f"settings are {data!r}")
        if data == b"colour=blue":
            seen.set()

    one.set(settings, b"colour=blue")
    assert seen.wait(10), "the watch saw nothing"

    report: list[str] = []
    workers = [
        threading.Thread(target=work, args=(client, name, report))
        for client, name in ((one, "anna"), (two, "bert"))
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    begun, ended = report[::2], report[1::2]
    assert [one.replace("begins", "ends") for one in begun] == ended, "two workers had the lock at once"
    print(f"{len(begun)} times, one worker at a time")
    one.set(settings, b"")
    for client in (one, two):
        client.stop()
        client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
