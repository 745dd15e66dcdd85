"""Messages of the native protocol that are made to cost more than they are long, and such values, stored for others."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import pytest

from tests.fuzz.costly import alike, crowding, packed_array, packed_map, packed_message
from tests.hostile.siege import Target
from tests.processes.quiet import QuietClient
from zraft_client import Client, FailedError
from zraft_core.errors import Code
from zraft_core.wire.dictionary import DICTIONARIES, entry_name, entry_of
from zraft_core.znodes.txn import CREATE, SET_DATA

MESSAGE_BYTES: Final = 1_040_000
"""A little less than client.jute_maxbuffer."""

DICTIONARY: Final = "hostile"
TICK_S: Final = 0.01
READER_STALL_S_MAX: Final = 5.0

WIDE: Final = (
    *(b"\x80", b"\xc0", b"\x91\xc0", b"\x81\xa0\xc0", b"\x81\x01\x80", b"\xd4\x07\x07"),
    *(b"\xd6\xff\x00\x00\x00\x01", b"\x81\x91\x01\xc0"),
)
"""Things of which a megabyte has many: maps, arrays, extensions, timestamps."""


def asking(value: bytes, *, field: str = "x") -> bytes:
    """A request with a field that is read before it is refused: nothing is stored."""
    return packed_message(id=1, type="ping", **{field: memoryview(value)})


def _pressed(target: Target, connections: int, *messages: bytes) -> None:
    """These messages, over and over; the answers are read."""
    all_of_them = b"".join(messages)
    with target.horde(connections) as horde:
        horde.send(all_of_them)
        horde.push(target.seconds, reading=True, again=all_of_them)


def keys_that_hash_alike(target: Target, connections: int) -> None:
    """Puts of 262 kB each whose value is a map of arrays that hash alike; each held the loop for 12 s."""
    value = memoryview(packed_map(alike(16_384)))
    _pressed(target, connections, packed_message(id=1, type="put", key="k", value=value))


def keys_that_crowd(target: Target, connections: int) -> None:
    """The same of integers that go past one another in a dict's table: 630 kB took 27 s."""
    _pressed(target, connections, asking(packed_map(crowding(16))))


def few_keys_that_hash_alike(target: Target, connections: int) -> None:
    """As many keys that hash alike as are taken, in many messages."""
    _pressed(target, connections, *[asking(packed_map(alike(256)))] * 100)


def wide_messages(target: Target, connections: int) -> None:
    """A megabyte of the smallest maps, arrays, extensions and timestamps each."""
    _pressed(target, connections, *[asking(packed_array(MESSAGE_BYTES // len(one), one)) for one in WIDE])


def wide_keys(target: Target, connections: int) -> None:
    """Keys of a megabyte: arrays of small things."""
    keys = [packed_array(MESSAGE_BYTES // len(one), one) for one in (b"\xc0", b"\xc3", b"\x91\xc0")]
    _pressed(target, connections, *[packed_message(id=1, type="get", key=memoryview(key)) for key in keys])


def deep_messages(target: Target, connections: int) -> None:
    """Arrays and maps in one another, as deep as can be read, also in commands of claims: those ended the server."""
    deep = b"\x91" * 1_010 + b"\xc0"
    commands = [begin + deep for begin in (b"", b"\x93\x01\x00", b"\x93\x01\x06\x96\xa1g")]
    claims = [packed_message(id=1, type="claim", group=1, command=command) for command in commands]
    _pressed(target, connections, *claims, asking(deep), asking(b"\x81\x01" * 1_010 + b"\xc0"))


def promising_commands(target: Target, connections: int) -> None:
    """Commands of 14 kB whose headers promise arrays of 80 MB."""
    command = b"\xdd\x00\x00\x27\x10" * 1_000 + bytes(9_000)
    _pressed(target, connections, packed_message(id=1, type="claim", group=1, command=command))


def values_that_hash_alike(target: Target, connections: int) -> None:
    """Values that are stored around the native protocol, and read by other clients: each read fails at once, and alone."""
    values = {"arrays": packed_map(alike(8_192)), "integers": packed_map(crowding(14))}
    with QuietClient(target.address, timeout_ms=40_000) as writer:
        for path in ("/zraft", DICTIONARIES, f"{DICTIONARIES}/{DICTIONARY}"):
            _created(writer, path, b"")
        for name, value in values.items():
            path = f"{DICTIONARIES}/{DICTIONARY}/{entry_name(name)}"
            _created(writer, path, b"")
            writer.write((SET_DATA, path, entry_of(name)[1] + value, -1))
    stall_s = asyncio.run(_read(target, list(values), connections))
    print(f"\na client that reads such values stalls for {stall_s:.2f} s")
    assert stall_s < READER_STALL_S_MAX, f"the loop of a client that reads stood still for {stall_s:.2f} s"


def _created(writer: QuietClient, path: str, data: bytes) -> None:
    try:
        writer.write((CREATE, path, data, None, 0, -1))
    except AssertionError:
        pass  # it is there already


async def _read(target: Target, names: list[str], clients: int) -> float:
    """The longest that the loop of a program stood still whose clients read these entries all the time."""
    longest_s = 0.0
    ends = time.monotonic() + target.seconds

    async def tick() -> None:
        nonlocal longest_s
        while time.monotonic() < ends:
            began = time.monotonic()
            await asyncio.sleep(TICK_S)
            longest_s = max(longest_s, time.monotonic() - began - TICK_S)

    async def read() -> None:
        async with Client(str(target.address)) as client:
            dictionary = client.dictionary(DICTIONARY)
            await dictionary.put("fine", {"a": 1})
            while time.monotonic() < ends:
                for name in names:
                    with pytest.raises(FailedError) as refused:
                        await dictionary.get(name)
                    assert refused.value.code is Code.DATA_INCONSISTENCY, str(refused.value)
                assert await dictionary.get("fine") == {"a": 1}

    await asyncio.gather(tick(), *(read() for _ in range(clients)))
    return longest_s
