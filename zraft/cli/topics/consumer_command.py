"""The command `zraft consumer`: who consumes topics, how far each is, and where each is to go on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Final

import click
from attrs import evolve, frozen

from zraft.cli.client_options import Access, is_client, run
from zraft.cli.listings.listing import Column, Grid, Listing
from zraft.cli.listings.listing_options import lists
from zraft.cli.topics.places import EARLIEST, EXAMPLES, LATEST, Place, offsets_of, place
from zraft_core.errors import ConfigError, ZraftError

if TYPE_CHECKING:
    from zraft_client.topics import Topics
    from zraft_client.topics.values import Bounds, ConsumerPlace

Row = dict[str, object]


@frozen
class Consumption:
    """Consumers of topics, as far as the leaders of their partitions answered.

    Attributes:
        places: of all consumers that were found, by topic and partition.
        partitions: how many partitions each topic has that was looked at.
        bounds: of partitions that some group of their topic has never claimed, by (topic, partition), if they may be read.
        problems: why nothing is known of a partition, by (topic, partition).
    """

    places: tuple[ConsumerPlace, ...]
    partitions: dict[str, int]
    bounds: dict[tuple[str, int], Bounds]
    problems: dict[tuple[str, int], str]

    def unclaimed(self, topic: str, begun: Collection[int]) -> list[int]:
        """Return the partitions of a topic that a group has never claimed, if it has begun in these."""
        return [
            partition
            for partition in range(self.partitions.get(topic, 0))
            if partition not in begun and (topic, partition) not in self.problems
        ]

    def complaint(self) -> str:
        """Return which partitions are missing from what is shown, and why; nothing if none is."""
        if not self.problems:
            return ""
        return "nothing is known of some partitions, which are left out of each lag:\n" + "\n".join(
            self.problems.values()
        )


@click.group()
def consumer() -> None:
    """Show who consumes topics and how far each is, and let one go on elsewhere.

    \b
        zraft consumer list
        zraft consumer describe billing
        zraft consumer reset billing --topic orders --to earliest

    A consumer is either one that commits offsets under a name of its own, or a group whose members share partitions by
    claims. A program that commits nothing is not seen.
    """


@consumer.command("list")
@click.option("--topic", "only", metavar="TOPIC", help="Only those of this topic.")
@is_client
@lists
def list_(access: Access, only: str | None) -> Listing:
    """Show all consumers.

    \b
    kind        "offset" stores how far it is; "group" shares partitions by claims.
    partitions  in how many partitions of the topic it has begun.
    lag         how many records it has not consumed yet. For a group, these are also the
                records of partitions that none of its members has ever claimed.
    members     how many of a group claim something now.

    Partitions without a leader are named at the end, and the exit code is 1 then.
    """
    found = run(_found(access, only))
    return _listing(_summaries(found), found)


@consumer.command()
@click.argument("name", metavar="NAME")
@click.option("--topic", "only", metavar="TOPIC", help="Only of this topic.")
@is_client
@lists
def describe(access: Access, name: str, only: str | None) -> Listing:
    """Show how far consumer NAME is in each partition, and who claims it.

    \b
    offset  the next record that it consumes; empty where it has not begun yet.
    end     behind the newest record of the partition.
    lag     how many records it has not consumed yet, also where messages are batches of records.
    owners  who claims the partition now, if it is a group; - if nobody does.

    A partition that nobody of a group has ever claimed has no offset. Its lag is all records that are kept, because a group
    begins with the oldest one, unless its members are told to begin with the newest (`start_at_latest`).

    Partitions without a leader are named at the end, and the exit code is 1 then.
    """
    found = run(_found(access, only))
    return _listing(_rows_of(found, name.encode(), only), found)


@consumer.command()
@click.argument("name", metavar="NAME")
@click.option("--topic", metavar="TOPIC", required=True, help="The topic whose partitions are meant.")
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated."
)
@click.option(
    "--to",
    metavar="PLACE",
    type=place(EARLIEST, LATEST),
    help=f"Go on there: earliest, latest, {EXAMPLES}.",
)
@click.option("--forget", is_flag=True, help="Forget the consumer there; it begins anew where it is told to.")
@is_client
def reset(
    access: Access, name: str, topic: str, partitions: tuple[int, ...], to: Place | None, forget: bool
) -> None:
    """Let consumer NAME, which stores offsets, go on elsewhere when it is started again.

    Stop it first: one that runs goes on as before, and stores its own offset again.
    """
    if (to is None) != forget:
        raise ConfigError("--to, --forget: expected one of them")
    run(_reset(access, name.encode(), topic, partitions, to))


async def _consumption(topics: Topics, only: str | None) -> Consumption:
    """Return who consumes one topic or all of them.

    Raises:
        NoTopicError: the topic does not exist. One of several that is deleted meanwhile is left out.
    """
    from zraft_client.errors import DeadlineError
    from zraft_client.topics.errors import NoTopicError

    places: list[ConsumerPlace] = []
    partitions: dict[str, int] = {}
    problems: dict[tuple[str, int], str] = {}
    for topic in await topics.list() if only is None else (await topics.describe(only),):
        partitions[topic.name] = len(topic.partitions)
        found = await asyncio.gather(
            *(topics.consumers_of(topic.name, number) for number in range(len(topic.partitions))),
            return_exceptions=True,
        )
        for number, answer in enumerate(found):
            if isinstance(answer, DeadlineError):
                problems[topic.name, number] = str(answer)
            elif isinstance(answer, NoTopicError):
                partitions.pop(topic.name, None)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                places += answer
    if problems:
        # A partition of a deleted topic has no leader, and is nobody's concern.
        there = {topic.name for topic in await topics.list()}
        problems = {key: problem for key, problem in problems.items() if key[0] in there}
    return await _with_bounds(topics, Consumption(tuple(places), partitions, {}, problems))


async def _with_bounds(topics: Topics, found: Consumption) -> Consumption:
    """Add the bounds of partitions that some group has never claimed: no answer about consumers tells of those."""
    from zraft_client.errors import DeadlineError, NoAuthError
    from zraft_client.topics.errors import NoTopicError

    begun: dict[tuple[bytes, str], set[int]] = {}
    for one in found.places:
        if one.owners is not None:
            begun.setdefault((one.name, one.topic), set()).add(one.partition)
    wanted = sorted(
        {(topic, partition) for (_, topic), has in begun.items() for partition in found.unclaimed(topic, has)}
    )
    answers = await asyncio.gather(*(topics.bounds_of(*where) for where in wanted), return_exceptions=True)
    bounds: dict[tuple[str, int], Bounds] = {}
    problems = dict(found.problems)
    for where, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, DeadlineError):
            problems[where] = str(answer)
        elif isinstance(answer, NoAuthError | NoTopicError):
            continue  # who may only administer a topic sees the lag of what is begun
        elif isinstance(answer, BaseException):
            raise answer
        else:
            bounds[where] = answer
    return evolve(found, bounds=bounds, problems=problems)


def _summaries(found: Consumption) -> list[Row]:
    """Return a row for each consumer of each topic."""

    def who(place: ConsumerPlace) -> tuple[bytes, bool, str]:
        return place.name, place.owners is not None, place.topic

    rows: list[Row] = []
    for (name, shares, topic), places in groupby(sorted(found.places, key=who), key=who):
        each = list(places)
        lag = sum(place.lag for place in each)
        if shares:
            unclaimed = found.unclaimed(topic, {place.partition for place in each})
            lag += sum(_lag_of(found.bounds.get((topic, partition))) or 0 for partition in unclaimed)
        rows.append(
            {
                "consumer": _shown(name),
                "kind": "group" if shares else "offset",
                "topic": topic,
                "partitions": len(each),
                "lag": lag,
                "members": len({owner for place in each for owner in place.owners or ()}) if shares else None,
            }
        )
    return rows


def _lag_of(bounds: Bounds | None) -> int | None:
    """Return the lag of a group that begins at the oldest record of a partition; None if nobody knows it."""
    return None if bounds is None else bounds.end - bounds.first


def _shown(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _listing(rows: list[Row], found: Consumption) -> Listing:
    """Return rows of the same fields, each as an object of JSON, and all as a table."""
    columns = tuple(
        Column(name, right=any(isinstance(row[name], int) for row in rows), spare=SPARE.get(name, 0))
        for name in (rows[0] if rows else {})
    )
    cells = tuple(tuple(_cell(row, name) for name in row) for row in rows)
    parts = (Grid(columns, cells),) if rows else ("no consumers",)
    return Listing(tuple(rows), parts, found.complaint())


SPARE: Final = {"kind": 2, "members": 1}


def _cell(row: Row, name: str) -> str:
    value = row[name]
    if isinstance(value, list):
        return ", ".join(map(str, value)) or ("-" if row["kind"] == "group" else "")
    return "" if value is None else str(value)


async def _found(access: Access, only: str | None) -> Consumption:
    from zraft_client.topics import Topics

    async with access.client() as client, Topics(client) as topics:
        return await _consumption(topics, only)


def _rows_of(found: Consumption, name: bytes, only: str | None) -> list[Row]:
    """Return the rows of one consumer.

    Raises:
        ZraftError: there is no such consumer.
    """
    rows = _rows(found, name)
    if not rows:
        where = "any topic" if only is None else f"topic {only!r}"
        missing = "".join(f"\n{problem}" for problem in found.problems.values())
        raise ZraftError(
            f"consumer {_shown(name)!r}: it consumes no partition of {where}: it has stored no offset there, and claims "
            f"nothing; `zraft consumer list` shows who does{missing}"
        )
    return rows


def _rows(found: Consumption, name: bytes) -> list[Row]:
    """Return a row for each partition of the topics that a consumer consumes, also where it has not begun."""
    places = {(one.topic, one.partition, _kind(one)): one for one in found.places if one.name == name}
    rows: list[Row] = []
    for topic, kind in dict.fromkeys((one.topic, _kind(one)) for one in places.values()):
        for partition in range(found.partitions.get(topic, 0)):
            if (topic, partition) in found.problems:
                continue
            one = places.get((topic, partition, kind))
            # A consumer that stores offsets may read some partitions and no others; a group shares all of them.
            bounds = found.bounds.get((topic, partition)) if one is None and kind == "group" else None
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": None if one is None else one.offset,
                    "end": one.end if one is not None else None if bounds is None else bounds.end,
                    "lag": one.lag if one is not None else _lag_of(bounds),
                    "kind": kind,
                    "owners": [] if one is None else list(one.owners or ()),
                }
            )
    return rows


def _kind(place: ConsumerPlace) -> str:
    return "offset" if place.owners is None else "group"


async def _reset(
    access: Access, name: bytes, topic: str, partitions: tuple[int, ...], to: Place | None
) -> None:
    from zraft_client.topics import Topics

    async with access.client() as client, Topics(client) as topics:
        known = [place for place in await topics.consumers(topic) if place.name == name]
        if any(place.owners is not None for place in known):
            raise ZraftError(
                f"consumer {_shown(name)!r}: it is a group that shares partitions by claims, which only its members move"
            )
        bounds = await topics.bounds(topic)
        wanted = partitions or tuple(bounds if to is not None else (place.partition for place in known))
        places: Mapping[int, int | None] = dict.fromkeys(bounds)
        if to is not None:
            places = await offsets_of(topics, topic, to, bounds)
        for partition in wanted:
            if partition not in bounds:
                raise ZraftError(
                    f"--partition: topic {topic!r} has partitions 0 to {len(bounds) - 1}, found {partition}"
                )
            offset = places[partition]
            await topics.set_offset(topic, partition, name, offset)
            click.echo(
                f"{topic}/{partition}: " + ("forgotten" if offset is None else f"goes on at offset {offset}")
            )
