"""The command `zraft topic`: lists and changes topics, and shows where their partitions are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import click

from zraft.cli.listings.listing import Column, Grid, Listing
from zraft.cli.listings.listing_options import lists
from zraft.cli.operator_options import asks_cluster, do, wait_done
from zraft.cli.topics.places import TIMES
from zraft.cli.topics.topic_acl_command import acl
from zraft.cli.topics.topic_records import consume, produce

if TYPE_CHECKING:
    from zraft.cli.topics.topic_description import PartitionView, ReplicaView, TopicView
    from zraft.operator.client import OperatorClient
    from zraft.operator.requests import ReplicaLine, TopicDescription, TopicLine

NONE: Final = "none"
_UNBOUNDED: Final = -1
"""The meaning of "none" on the command line, where an absent option means that nothing changes."""
_SIZES: Final = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def _amount(kind: str, units: dict[str, int], example: str) -> Callable[[str], int]:
    """Read a whole number with a unit, or "none"."""

    def read(text: str) -> int:
        if text == NONE:
            return _UNBOUNDED
        found = re.fullmatch(r"([0-9]+)([A-Za-z]*)", text)
        factor = found and units.get(found.group(2), units.get(found.group(2).upper()))
        if found is None or not factor or int(found.group(1)) * factor >= 2**63:
            raise click.BadParameter(f"found {text!r}, expected a {kind} such as {example}, or {NONE}")
        return int(found.group(1)) * factor

    return read


_SIZE: Final = _amount("size", _SIZES, "500MiB or 10GiB")
_TIME: Final = _amount("time", TIMES, "12h or 7d")


@click.group()
def topic() -> None:
    """Show topics and where their partitions are, and change them while the cluster runs.

    \b
        zraft topic create orders --partitions 8 --retain-age 7d --key cluster.key
        zraft topic list --key cluster.key
        zraft topic describe orders --key cluster.key
        zraft topic alter orders --partitions 16 --retain-size 50GiB --key cluster.key
        zraft topic delete orders --key cluster.key
        zraft topic acl add orders sasl:alice:rw --key cluster.key
        zraft topic produce orders < lines
        zraft topic consume orders --follow

    Whoever has the cluster key may change topics; `produce` and `consume` are clients and need none. The exit
    code is 0 on success, 1 if the request was refused or no server could be asked, 2 if the command is wrong,
    and 3 if it is not known whether it was done.
    """


topic.add_command(produce)
topic.add_command(consume)
topic.add_command(acl)


@topic.command("list")
@asks_cluster
@lists
def list_(client: OperatorClient) -> Listing:
    """Show all topics.

    \b
    partitions  how many take messages; "4 of 8" while the others are being set up.
    moving      partitions that are on their way to other servers.
    retained    how much of each partition is kept, at least; and for how long.
    """
    lines = list(_topics(client))
    return Listing(tuple(map(_line_as_json, lines)), (Grid(TOPIC_COLUMNS, tuple(map(_topic_row, lines))),))


@topic.command()
@click.argument("name", metavar="NAME")
@asks_cluster
@lists
def describe(client: OperatorClient, name: str) -> Listing:
    """Show the partitions of topic NAME: who leads them, which replicas are in sync, and what is kept.

    All servers that hold a partition are asked. A server that does not answer is named, with the reason.

    \b
    group        what `zraft log dump --deliveries` calls the partition: the id of its Raft group.
    leader       who leads it now; to lead: who should.
    in sync      the replicas that answer and have everything that is committed, or are sent the rest right now.
    out of sync  the others: how far behind they are, and for how long their leader has not heard them.
    offsets      the oldest record that is kept, and the one behind the newest.
    size         the bytes of its deliveries on the leader's disk; oldest: the age of the oldest of them.
    """
    from zraft.cli.topics.topic_description import look_at

    view = look_at(client, list(_pages(client, name)))
    return Listing((_description_as_json(view),), _partitions_shown(view))


@topic.command()
@click.argument("name", metavar="NAME")
@click.option("--partitions", default=1, show_default=True, type=click.IntRange(1))
@click.option(
    "--retain-size",
    metavar="SIZE",
    type=_SIZE,
    help="Keep at least so much of each partition: 500MiB, 10GiB. Without it, size removes nothing.",
)
@click.option(
    "--retain-age",
    metavar="TIME",
    type=_TIME,
    help="Keep messages for so long: 12h, 7d. Without it, age removes nothing.",
)
@click.option("--no-wait", is_flag=True, help="Do not wait until the partitions are set up.")
@asks_cluster
def create(
    client: OperatorClient,
    name: str,
    partitions: int,
    retain_size: int | None,
    retain_age: int | None,
    no_wait: bool,
) -> None:
    """Create topic NAME."""
    from zraft.operator.requests import TopicCreate

    do(client, TopicCreate(name, partitions, _bound(retain_size, None), _bound(retain_age, None)))
    if not no_wait:
        _wait(client, name)


@topic.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="How many it should have: more than there are, because a topic never gets fewer.",
)
@click.option(
    "--retain-size",
    metavar="SIZE",
    type=_SIZE,
    help="The same as for create; with none, size removes nothing.",
)
@click.option(
    "--retain-age", metavar="TIME", type=_TIME, help="The same as for create; with none, age removes nothing."
)
@click.option("--no-wait", is_flag=True, help="Do not wait until new partitions take messages.")
@asks_cluster
def alter(
    client: OperatorClient,
    name: str,
    partitions: int | None,
    retain_size: int | None,
    retain_age: int | None,
    no_wait: bool,
) -> None:
    """Change topic NAME: more partitions, or how much is kept.

    Every consumer sees a change of the partitions at the same place of the topic's order.
    """
    from zraft.operator.requests import TopicAlter, TopicDescribe, TopicDescription, TopicRetain

    if partitions is None and retain_size is None and retain_age is None:
        raise click.UsageError("nothing to change: give --partitions, --retain-size or --retain-age")
    if retain_size is not None or retain_age is not None:
        now = client.call(TopicDescribe(name), TopicDescription)
        size, age = _bound(retain_size, now.retention_bytes), _bound(retain_age, now.retention_age_ms)
        do(client, TopicRetain(name, size, age))
    if partitions is not None:
        do(client, TopicAlter(name, partitions))
        if not no_wait:
            _wait(client, name)


@topic.command()
@click.argument("name", metavar="NAME")
@asks_cluster
def delete(client: OperatorClient, name: str) -> None:
    """Delete topic NAME, with everything in it.

    Nothing new is taken at once; what was accepted for other topics as well is still delivered there. The partitions go
    when nothing waits for them any more.
    """
    from zraft.operator.requests import TopicDelete

    do(client, TopicDelete(name))


@topic.command("give-up")
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True, type=click.IntRange(1))
@click.option("--yes", is_flag=True, help="Do not ask; for scripts.")
@asks_cluster
def give_up(client: OperatorClient, groups: tuple[int, ...], yes: bool) -> None:
    """Give up partitions whose disks are lost for good, by the numbers of their groups.

    An empty partition takes the place of each, if the topic exists. Until then, messages that were sent to them and to
    other partitions wait there as well, and a topic that is deleted is not gone. `zraft topic describe` and `zraft status`
    show the numbers. It is refused while a majority of a partition's disks answers.
    """
    from zraft.operator.requests import Done, TopicGiveUp

    for group in groups:
        click.echo(client.call(TopicGiveUp(group, sure=False), Done).text)
    click.echo(
        "Messages to these partitions that others have not got are lost, and others go on without them. Servers that hold "
        "them and come back drop them. If any of these disks can still be started, do that instead."
    )
    if not yes:
        click.confirm("Are these disks lost for good?", abort=True)
    for group in groups:
        do(client, TopicGiveUp(group, sure=True))


def _bound(given: int | None, otherwise: int | None) -> int | None:
    return otherwise if given is None else None if given == _UNBOUNDED else given


def _wait(client: OperatorClient, name: str) -> None:
    """Wait until all its partitions take messages; they are created within a second, if there are servers for them."""

    def unfinished() -> str:
        pages = list(_pages(client, name))
        ready = sum(row.state != "adding" for page in pages for row in page.partitions)
        wanted = pages[-1].wanted
        if ready >= wanted:
            click.echo(f"{wanted} partitions take messages" if wanted != 1 else "1 partition takes messages")
            return ""
        return (
            f"topic {name}: {ready} of {wanted} partitions take messages so far; the rest is being set up: see "
            f"`zraft topic describe {name}`"
        )

    wait_done(client, unfinished)


def _topics(client: OperatorClient) -> Iterator[TopicLine]:
    from zraft.operator.requests import TopicList, TopicListing

    after, more = "", True
    while more:
        page = client.call(TopicList(after), TopicListing)
        yield from page.topics
        more = page.more and bool(page.topics)
        after = page.topics[-1].name if page.topics else after


def _pages(client: OperatorClient, name: str) -> Iterator[TopicDescription]:
    from zraft.operator.requests import TopicDescribe, TopicDescription

    first, more = 0, True
    while more:
        page = client.call(TopicDescribe(name, first), TopicDescription)
        yield page
        first += len(page.partitions)
        more = page.more and bool(page.partitions)


TOPIC_COLUMNS: Final = (
    Column("topic"),
    Column("partitions", right=True),
    Column("moving", right=True),
    Column("retained"),
)


def _topic_row(line: TopicLine) -> tuple[str, ...]:
    count = str(line.wanted) if line.partitions == line.wanted else f"{line.partitions} of {line.wanted}"
    retained = _retained(line.retention_bytes, line.retention_age_ms)
    return (line.name, count, str(line.moving or ""), retained)


PARTITION_COLUMNS: Final = (
    Column("partition", right=True),
    Column("group", spare=3),
    Column("leader", right=True),
    Column("to\nlead", right=True, spare=2),
    Column("in sync"),
    Column("out of sync", folds=True),
    Column("offsets"),
    Column("size", right=True),
    Column("oldest", right=True, spare=1),
    Column("state"),
)


def _partition_row(one: PartitionView) -> tuple[str, ...]:
    best = one.best
    oldest = None if best is None else best.oldest_age_ms
    return (
        str(one.line.number),
        str(one.line.group),
        "none" if one.leader is None else str(one.leader),
        str(one.line.preferred or ""),
        ", ".join(str(replica.server) for replica in one.replicas if replica.in_sync),
        _out_of_sync(one),
        "?" if best is None else f"{best.first} to {best.end}",
        "?" if best is None else _rounded(best.stored_bytes, _SIZES, "B"),
        "" if oldest is None else _rounded(oldest, TIMES, "ms"),
        one.line.state,
    )


def _partitions_shown(view: TopicView) -> tuple[Grid | str, ...]:
    missing = view.topic.wanted - len(view.partitions)
    more = f"; {missing} more are not created yet" if missing > 0 else ""
    retained = _retained(view.topic.retention_bytes, view.topic.retention_age_ms)
    problems = [
        f"partition {one.line.number} on server {replica.server}: {replica.own.problem}"
        for one in view.partitions
        for replica in one.replicas
        if replica.own is not None and replica.own.problem
    ]
    problems += [
        f"server {look.server} did not tell what it holds: {look.problem}"
        for look in view.looks
        if look.problem
    ]
    table = Grid(PARTITION_COLUMNS, tuple(map(_partition_row, view.partitions)))
    return (table, f"retained: {retained}{more}", *problems)


def _out_of_sync(one: PartitionView) -> str:
    """Return the replicas that are not in sync, and why. Without a leader, nobody knows which these are."""
    if not any(replica.leads for replica in one.replicas):
        return f"unknown: {', '.join(str(replica.server) for replica in one.replicas)}"
    return "; ".join(_lagging(replica) for replica in one.replicas if not replica.in_sync)


def _lagging(replica: ReplicaView) -> str:
    """Return a replica with what its leader knows of it."""
    seen = replica.seen
    if seen is None:
        return f"{replica.server} (unknown)"
    behind = "its log is not known" if seen.behind is None else f"{seen.behind} entries behind"
    silent = "never heard" if seen.silent_ms is None else f"silent {_rounded(seen.silent_ms, TIMES, 'ms')}"
    return f"{replica.server} ({behind}, {silent})"


def _retained(size: int | None, age_ms: int | None) -> str:
    bounds = []
    if size is not None:
        bounds.append(_written(size, _SIZES, "B"))
    if age_ms is not None:
        bounds.append(_written(age_ms, TIMES, "ms"))
    return ", ".join(bounds) or "everything"


def _written(amount: int, units: dict[str, int], smallest: str) -> str:
    """Return the amount with the largest unit that makes it a whole number."""
    name, factor = max(
        (
            (name, factor)
            for name, factor in units.items()
            if amount % factor == 0 and (amount or factor == 1)
        ),
        key=lambda unit: unit[1],
    )
    shown = name.replace("IB", "iB") if name else smallest
    return f"{amount // factor}{shown}"


def _rounded(amount: int, units: dict[str, int], smallest: str) -> str:
    """Return the amount in the largest unit of which there is at least one, with one digit behind the point."""
    name, factor = max(
        ((name, factor) for name, factor in units.items() if factor <= max(1, amount)),
        key=lambda unit: unit[1],
    )
    shown = name.replace("IB", "iB") if name else smallest
    return f"{amount}{shown}" if factor == 1 else f"{amount / factor:.1f}{shown}"


def _line_as_json(line: TopicLine) -> dict[str, object]:
    return {
        "name": line.name,
        "id": line.topic,
        "partitions": line.partitions,
        "wanted": line.wanted,
        "moving": line.moving,
        "retention_bytes": line.retention_bytes,
        "retention_age_ms": line.retention_age_ms,
    }


def _description_as_json(view: TopicView) -> dict[str, object]:
    topic = view.topic
    return {
        "name": topic.name,
        "id": topic.topic,
        "wanted": topic.wanted,
        "retention_bytes": topic.retention_bytes,
        "retention_age_ms": topic.retention_age_ms,
        "partitions": [_partition_as_json(one) for one in view.partitions],
        "unanswered": [
            {"server": look.server, "address": look.address, "problem": look.problem}
            for look in view.looks
            if look.problem
        ],
    }


def _partition_as_json(one: PartitionView) -> dict[str, object]:
    return {
        "number": one.line.number,
        "group": one.line.group,
        "preferred": one.line.preferred,
        "servers": list(one.line.servers),
        "state": one.line.state,
        "leader": one.leader,
        **_stored_as_json(one.best),
        "replicas": [_replica_as_json(replica) for replica in one.replicas],
    }


def _stored_as_json(own: ReplicaLine | None) -> dict[str, object]:
    """Return what a replica holds; null where that is not known."""
    return {
        "first": None if own is None else own.first,
        "end": None if own is None else own.end,
        "stored_bytes": None if own is None else own.stored_bytes,
        "oldest_age_ms": None if own is None else own.oldest_age_ms,
    }


def _replica_as_json(replica: ReplicaView) -> dict[str, object]:
    seen = replica.seen
    return {
        "server": replica.server,
        "leads": replica.leads,
        "in_sync": replica.in_sync,
        "behind": None if seen is None else seen.behind,
        "silent_ms": None if seen is None else seen.silent_ms,
        **_stored_as_json(replica.own),
        "problem": "" if replica.own is None else replica.own.problem,
    }
