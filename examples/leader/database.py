"""High availability of a database, as Patroni does it: whoever holds the leader key is the primary, the others follow it.

    python database.py NAME [--connect HOST:PORT,…] [--ttl SECONDS]

Start it in several terminals with different names, then end the one that is the primary with Ctrl-C, or kill it: another one
is promoted, at once or after the ttl. The database is a pretended one, which prints what it is told to do.

The leader key is ephemeral: it goes when its owner's session ends. A primary whose connection is lost steps down before the
servers can give the key to somebody else. The key's zxid grows from primary to primary: whatever a primary writes to
elsewhere can refuse a smaller one (a fencing token).
"""

import argparse
import asyncio
import contextlib
import signal

from zraft_client import Client, ConnectionState, NodeExistsError, NoNodeError

HOSTS = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
PLACE = "/examples/database"
LEADER = f"{PLACE}/leader"


class Database:
    """In the place of a real server: promote and follow would start and reconfigure it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.role = "stopped"

    def _become(self, role: str) -> None:
        if role != self.role:
            self.role = role
            print(f"{self.name}: {role}", flush=True)

    def promote(self, token: int) -> None:
        self._become(f"primary, with token {token}")

    def follow(self, primary: str) -> None:
        self._become(f"replica of {primary}")

    def demote(self, why: str) -> None:
        self._become(f"replica of nobody, because {why}")


async def ensure(client: Client, path: str) -> None:
    """Make a znode and those above it, unless they exist."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        with contextlib.suppress(NodeExistsError):
            await client.create("/" + "/".join(parts[:depth]), b"")


async def take_or_follow(client: Client, database: Database) -> None:
    """Create the leader key, or find out who was quicker."""
    while True:
        try:
            await client.create(LEADER, database.name.encode(), ephemeral=True)
        except NodeExistsError:
            pass  # perhaps by this very session, before its connection broke
        try:
            found = await client.read(LEADER)
        except NoNodeError:
            continue  # gone again
        if client.session is not None and found.stat.ephemeral_owner == client.session.id:
            database.promote(found.stat.czxid)
        else:
            database.follow(found.data.decode())
        return


async def run(name: str, hosts: str, ttl_s: float) -> None:
    database = Database(name)

    def on_state(state: ConnectionState) -> None:
        if state in (ConnectionState.SUSPENDED, ConnectionState.EXPIRED):
            database.demote("the connection is lost")

    async with Client(hosts, session_timeout_s=ttl_s) as client:
        client.add_listener(on_state)
        await ensure(client, PLACE)
        # Events come when the key is made or goes, and after each lost connection.
        events = client.subscribe_path(LEADER)
        try:
            await take_or_follow(client, database)
            async for _ in events:
                await take_or_follow(client, database)
        finally:
            # Before the session ends, and with it the key.
            database.demote("it stops")
            events.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description="A member of a pretended cluster of databases.")
    parser.add_argument("name")
    parser.add_argument("--connect", default=HOSTS, metavar="HOST:PORT,…")
    parser.add_argument("--ttl", type=float, default=10.0, metavar="SECONDS")
    given = parser.parse_args()
    running = asyncio.create_task(run(given.name, given.connect, given.ttl))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running


if __name__ == "__main__":
    asyncio.run(main())
