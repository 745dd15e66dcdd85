"""The commands `zraft topic produce` and `zraft topic consume`: records of a topic as lines."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import IO, TYPE_CHECKING, Final

import click
from attrs import Factory, define, frozen

from zraft.cli.client_options import Access, is_client, run
from zraft.cli.topics.places import EARLIEST, END, EXAMPLES, LATEST, Place, offsets_of, place
from zraft_core.errors import ConfigError, ZraftError

if TYPE_CHECKING:
    from zraft.cli.topics.record_lines import RecordLine
    from zraft_client.topics import Record, Topics
    from zraft_client.topics.sent import Sent
    from zraft_client.topics.values import Receipt

CHUNK_BYTES: Final = 64 * 1024
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a line that is read: above what any message may have."""
LOOK_S: Final = 0.5


def _separator(text: str | None) -> bytes | None:
    """Return the bytes of a separator, in which \\t stands for a tab."""
    if text is None:
        return None
    if not text:
        raise ConfigError("--keys: found nothing, expected a separator such as : or \\t")
    return text.replace("\\t", "\t").encode()


# -- produce


@click.command()
@click.argument("name", metavar="TOPIC")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--partition", type=click.IntRange(0), help="Send everything to this partition.")
@click.option("--keys", "separator", metavar="SEP", help="A line is a key, SEP and a value; \\t is a tab.")
@click.option(
    "--header", "headers", metavar="NAME=VALUE", multiple=True, help="Give each record this header, too."
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help='A line is an object: "value", and perhaps "key", "headers", "partition" and "timestamp".',
)
@click.option(
    "--compression",
    type=click.Choice(("none", "gzip", "snappy", "lz4", "zstd")),
    default="none",
    show_default=True,
    help="Compress records that are sent together.",
)
@is_client
def produce(
    access: Access,
    name: str,
    file: IO[bytes],
    partition: int | None,
    separator: str | None,
    headers: tuple[str, ...],
    as_json: bool,
    compression: str,
) -> None:
    """Send each line of FILE, or of the standard input, to TOPIC as a record.

    \b
        echo hello | zraft topic produce orders
        zraft topic produce orders --keys : <<< "anna:two pots of tea"
        zraft topic consume orders --json | zraft topic produce copy --json

    Records with equal keys go to one partition, others to all in turn. The command ends when all are on the disks of a
    majority, and says on standard error where they are.
    """
    from zraft.cli.topics.record_lines import read_json, read_plain

    if as_json and separator is not None:
        raise ConfigError("--json, --keys: expected one of them, as an object has its key inside")
    read = read_json if as_json else partial(read_plain, separator=_separator(separator))
    sending = _Sending(partition, dict(map(_header, headers)), read)
    run(_produce(access, name, file, sending, compression))


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ConfigError(f"--header: found {text!r}, expected NAME=VALUE")
    return name, value.encode()


@frozen
class _Sending:
    """How lines become records."""

    partition: int | None
    headers: dict[str, bytes]
    read: Callable[[bytes], RecordLine]

    def record(self, line: bytes, number: int) -> RecordLine:
        try:
            return self.read(line)
        except ZraftError as error:
            raise type(error)(f"line {number}: {error}") from error


@define
class _Tally:
    """Where records came to be: by partition, how many and the offsets of the first and the last."""

    places: dict[tuple[str, int], tuple[int, int, int]] = Factory(dict)
    count: int = 0

    def add(self, receipt: Receipt) -> None:
        self.count += 1
        for where, offset in receipt.offsets.items():
            count, first, last = self.places.get(where, (0, offset, offset))
            self.places[where] = count + 1, min(first, offset), max(last, offset)

    def text(self) -> str:
        where = [
            f"{topic}/{partition} offset {first}" + (f" to {last}" if last > first else "")
            for (topic, partition), (_, first, last) in sorted(self.places.items())
        ]
        return f"{self.count} record{'s' if self.count != 1 else ''}" + (
            f": {', '.join(where)}" if where else ""
        )


async def _produce(access: Access, name: str, file: IO[bytes], sending: _Sending, compression: str) -> None:
    from zraft_client.topics import Compression, Topics

    tally = _Tally()
    under_way: deque[Sent] = deque()
    number = 0
    async with access.client() as client, Topics(client) as topics:
        await topics.directory.topic(name)
        async with topics.producer(compression=Compression[compression.upper()]) as producer:
            async for line in _lines(file):
                number += 1
                record = sending.record(line, number)
                chosen = sending.partition if record.partition is None else record.partition
                under_way.append(
                    await producer.send_soon(
                        name if chosen is None else (name, chosen),
                        record.value,
                        key=record.key,
                        headers={**sending.headers, **record.headers},
                        timestamp=record.timestamp,
                    )
                )
                while under_way and under_way[0].done():
                    tally.add(await under_way.popleft())
            await producer.flush()
            for sent in under_way:
                tally.add(await sent)
    click.echo(tally.text(), err=True)


async def _lines(file: IO[bytes]) -> AsyncIterator[bytes]:
    """Yield lines as they come, without their ends. The loop waits for no terminal and no pipe."""
    regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    if not regular:
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)
    rest = b""
    while True:
        chunk = file.read(CHUNK_BYTES) if regular else await reader.read(CHUNK_BYTES)
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise ZraftError(f"found a line of more than {LINE_BYTES_MAX} bytes, which no record may have")
        for line in lines:
            yield line
    if rest:
        yield rest


# -- consume


@click.command()
@click.argument("name", metavar="TOPIC")
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated."
)
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    type=place(EARLIEST, LATEST),
    default=EARLIEST,
    show_default=True,
    help=f"Begin there: earliest, latest, {EXAMPLES}.",
)
@click.option(
    "--to",
    "stop",
    metavar="PLACE",
    type=place(END),
    default=END,
    show_default=True,
    help="Stop before that offset or time, or at the end as it is when the command begins.",
)
@click.option("--follow", "-f", is_flag=True, help="Do not stop at the end: wait for further records.")
@click.option("--limit", "-n", type=click.IntRange(1), help="Stop after so many records.")
@click.option("--keys", "separator", metavar="SEP", help="Print key, SEP and value; \\t is a tab.")
@click.option("--json", "as_json", is_flag=True, help="Print each record as an object of JSON.")
@is_client
def consume(
    access: Access,
    name: str,
    partitions: tuple[int, ...],
    start: Place,
    stop: Place,
    follow: bool,
    limit: int | None,
    separator: str | None,
    as_json: bool,
) -> None:
    """Print the records of TOPIC, a line each, each partition's in their order.

    \b
        zraft topic consume orders
        zraft topic consume orders --follow --from latest --keys "\\t"
        zraft topic consume orders --partition 3 --from 1000 --limit 10 --json
        zraft topic consume orders --from 2026-11-29T10:00 --to 2026-11-29T11:00

    Nothing is committed, so nobody else is disturbed. Times are those at which records were delivered, whatever timestamps
    their producers gave them; without a zone they are local.
    """
    from zraft.cli.topics.record_lines import json_line, plain_line

    if as_json and separator is not None:
        raise ConfigError("--json, --keys: expected one of them, as an object has its key inside")
    if follow and stop != END:
        raise ConfigError("--follow, --to: expected one of them")
    between = _separator(separator)
    show: Callable[[Record], bytes] = json_line if as_json else lambda record: plain_line(record, between)
    run(_consume(access, name, partitions, start, None if follow else stop, limit, show))


async def _consume(
    access: Access,
    name: str,
    partitions: tuple[int, ...],
    start: Place,
    stop: Place | None,
    limit: int | None,
    show: Callable[[Record], bytes],
) -> None:
    """Print the records from one place to another; without `stop` there is no end."""
    from zraft_client.topics import Topics

    async with access.client() as client, Topics(client) as topics:
        bounds = await topics.bounds(name)
        unknown = [number for number in partitions if number not in bounds]
        if unknown:
            raise ZraftError(
                f"--partition: topic {name!r} has partitions 0 to {len(bounds) - 1}, found {unknown[0]}"
            )
        wanted = {number: bounds[number] for number in partitions or bounds}
        starts = await offsets_of(topics, name, start, wanted)
        ends: Mapping[int, int | None] = dict.fromkeys(wanted)
        if stop is not None:
            ends = await offsets_of(topics, name, stop, wanted)
        await _show(topics, name, starts, ends, limit, show)


async def _show(
    topics: Topics,
    name: str,
    starts: dict[int, int],
    ends: Mapping[int, int | None],
    limit: int | None,
    show: Callable[[Record], bytes],
) -> None:
    """Print records until every partition is at its end, or there are enough."""
    left = limit
    out = sys.stdout.buffer
    async with topics.consumer([(name, number) for number in starts]) as consumer:
        for number, offset in starts.items():
            consumer.seek(name, number, offset)
        while left is None or left:
            positions = consumer.positions()
            for number, end in ends.items():
                if end is not None and positions[name, number] >= end:
                    consumer.pause(name, number)
            if all(end is not None and positions[name, number] >= end for number, end in ends.items()):
                return
            records = await consumer.poll(LOOK_S)
            shown = [one for one in records if (end := ends[one.partition]) is None or one.offset < end][
                :left
            ]
            out.write(b"".join(map(show, shown)))
            out.flush()
            if left is not None:
                left -= len(shown)
