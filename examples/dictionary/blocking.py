"""zraft's own client with threads: a replicated dictionary, a counter, and a change that nobody else's overwrites.

python blocking.py [HOST:PORT,…]
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from zraft_client import BadVersionError, BlockingClient, DistributedDict

HOSTS = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"


def buy(stock: DistributedDict, thing: str) -> int:
    """Take one from the stock; what is left of it. Whoever is overtaken reads again."""
    while True:
        found = stock.get_versioned(thing)
        try:
            stock.replace(thing, found.value - 1, found.version)
        except BadVersionError:
            continue
        return int(found.value) - 1


def main(hosts: str = HOSTS) -> None:
    with BlockingClient(hosts) as client:
        stock = DistributedDict.over(client, "example-stock")
        stock["bolts"] = 20
        before = stock.increment("orders")
        with ThreadPoolExecutor(4) as buyers:
            left = list(buyers.map(lambda _: buy(stock, "bolts"), range(20)))
        assert sorted(left) == list(range(20)), "one bolt was sold twice"
        assert stock["bolts"] == 0
        # Exactly once, whatever connection or server fails meanwhile; it needs no version.
        after = stock.increment("orders")
        print(f"20 bolts sold, order number {after.value}")
        assert after.value > before.value


if __name__ == "__main__":
    main(*sys.argv[1:])
