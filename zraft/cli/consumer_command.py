"""The command `zraft consumer`: who consumes topics, how far each is, and where each is to go on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

import click

from zraft.cli.client_options import Access, is_client, run
from zraft.cli.operator_options import console
from zraft.cli.topic_records import EARLIEST, LATEST, place
from zraft_core.errors import ConfigError, ZraftError

if TYPE_CHECKING:
    from zraft_client.topics import Topics
    from zraft_client.topics.values import ConsumerPlace

Row = dict[str, object]


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
@click.option(
    "--json", "as_json", is_flag=True, help="Print one object of JSON per consumer and topic, for scripts."
)
@is_client
def list_(access: Access, only: str | None, as_json: bool) -> None:
    """Show all consumers.

    \b
    kind     "offset" stores how far it is; "group" shares partitions by claims.
    lag      how many records of the topic it has not consumed yet.
    members  how many of a group claim something now.
    """
    run(_list(access, only, as_json=as_json))


@consumer.command()
@click.argument("name", metavar="NAME")
@click.option("--topic", "only", metavar="TOPIC", help="Only of this topic.")
@click.option("--json", "as_json", is_flag=True, help="Print one object of JSON per partition, for scripts.")
@is_client
def describe(access: Access, name: str, only: str | None, as_json: bool) -> None:
    """Show how far consumer NAME is in each partition, and who claims it."""
    run(_describe(access, name.encode(), only, as_json=as_json))


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
    help="Go on there: earliest, latest, or the number of an offset.",
)
@click.option("--forget", is_flag=True, help="Forget the consumer there; it begins anew where it is told to.")
@is_client
def reset(
    access: Access, name: str, topic: str, partitions: tuple[int, ...], to: str | int | None, forget: bool
) -> None:
    """Let consumer NAME, which stores offsets, go on elsewhere when it is started again.

    Stop it first: one that runs goes on as before, and stores its own offset again.
    """
    if (to is None) != forget:
        raise ConfigError("--to, --forget: expected one of them")
    run(_reset(access, name.encode(), topic, partitions, to))


async def _places(topics: Topics, only: str | None) -> list[ConsumerPlace]:
    """Return the places of all consumers, by topic."""
    names = [only] if only is not None else [topic.name for topic in await topics.list()]
    return [place for name in names for place in await topics.consumers(name)]


def _summaries(places: Iterable[ConsumerPlace]) -> list[Row]:
    """Return a row for each consumer of each topic."""

    def who(place: ConsumerPlace) -> tuple[bytes, bool, str]:
        return place.name, place.owners is not None, place.topic

    rows: list[Row] = []
    for (name, shares, topic), found in groupby(sorted(places, key=who), key=who):
        each = list(found)
        rows.append(
            {
                "consumer": _shown(name),
                "kind": "group" if shares else "offset",
                "topic": topic,
                "partitions": len(each),
                "lag": sum(place.lag for place in each),
                "members": len({owner for place in each for owner in place.owners or ()}) if shares else None,
            }
        )
    return rows


def _shown(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _print(rows: list[Row], *, as_json: bool) -> None:
    """Print rows of the same fields, each as an object of JSON, or all as a table."""
    from rich.table import Column, Table

    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    first = rows[0] if rows else {}
    table = Table(
        *(
            Column(name, justify="right" if isinstance(value, int) else "left", no_wrap=True)
            for name, value in first.items()
        )
    )
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    console().print(table if rows else "no consumers")


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


async def _list(access: Access, only: str | None, *, as_json: bool) -> None:
    from zraft_client.topics import Topics

    async with access.client() as client, Topics(client) as topics:
        rows = _summaries(await _places(topics, only))
    _print(rows, as_json=as_json)


async def _describe(access: Access, name: bytes, only: str | None, *, as_json: bool) -> None:
    from zraft_client.topics import Topics

    async with access.client() as client, Topics(client) as topics:
        places = [one for one in await _places(topics, only) if one.name == name]
    if not places:
        where = "any topic" if only is None else f"topic {only!r}"
        raise ZraftError(f"consumer {_shown(name)!r}: it consumes no partition of {where}")
    rows: list[Row] = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "offset": one.offset,
            "end": one.end,
            "lag": one.lag,
            "kind": "offset" if one.owners is None else "group",
            "owners": list(one.owners or ()),
        }
        for one in places
    ]
    _print(rows, as_json=as_json)


async def _reset(
    access: Access, name: bytes, topic: str, partitions: tuple[int, ...], to: str | int | None
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
        for partition in wanted:
            if partition not in bounds:
                raise ZraftError(
                    f"--partition: topic {topic!r} has partitions 0 to {len(bounds) - 1}, found {partition}"
                )
            offset = _offset(to, bounds[partition].first, bounds[partition].end)
            await topics.set_offset(topic, partition, name, offset)
            click.echo(
                f"{topic}/{partition}: " + ("forgotten" if offset is None else f"goes on at offset {offset}")
            )


def _offset(to: str | int | None, first: int, end: int) -> int | None:
    if to is None:
        return None
    return first if to == EARLIEST else end if to == LATEST else int(to)
