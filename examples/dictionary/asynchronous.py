"""zraft's own client with asyncio: a thousand writes at a time, and another program to which the server pushes them.

python asynchronous.py [HOST:PORT,…]
"""

import asyncio
import sys
import uuid

from zraft_client import Client, Consistency

HOSTS = "127.0.0.1:2181,127.0.0.1:2182,127.0.0.1:2183"
NAME = "example-squares"


async def follow(client: Client, last: str) -> dict[object, object]:
    """Keep a copy of the dictionary until it has the key `last`. After a lost connection the server sends all again."""
    copy: dict[object, object] = {}
    async with client.subscribe_dictionary(NAME) as pushes:
        async for push in pushes:
            if push.restarted:
                copy.clear()
            for change in push.changes:
                if change.entry is None:
                    copy.pop(change.key, None)
                else:
                    copy[change.key] = change.entry.value
            if push.complete and last in copy:
                break
    return copy


async def main(hosts: str = HOSTS) -> None:
    last = str(uuid.uuid4())
    async with Client(hosts) as writer, Client(hosts) as reader:
        following = asyncio.create_task(follow(reader, last))
        squares = writer.dictionary(NAME)
        # All of these travel together.
        await asyncio.gather(*(squares.put(n, n * n) for n in range(1_000)))
        assert await squares.get(31) == 961
        # Cheaper, and never older than what this client has seen.
        entry = await squares.get_versioned(31, consistency=Consistency.LOCAL)
        print(f"31 times 31 is {entry.value}, version {entry.version}")
        await squares.put(last, True)
        copy = await asyncio.wait_for(following, 10)
        assert all(copy[n] == n * n for n in range(1_000))
        print("the copy has it, too")
        await squares.delete(last)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
