"""Findings of `zraft topic describe`: where partitions should be from one server, what each holds from all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from attrs import frozen

from zraft_core.address import parse_address
from zraft_core.errors import ZraftError

if TYPE_CHECKING:
    from zraft.operator.client import OperatorClient
    from zraft.operator.requests import FollowerLine, PartitionLine, ReplicaLine, TopicDescription

TIMEOUT_S: Final = 5.0
"""Seconds for one server: all are asked at once, so that dead ones cost this only once."""
GROUPS_PER_REQUEST: Final = 200
"""Partitions in one request: some milliseconds of the server's loop."""
SERVERS_AT_ONCE: Final = 16


@frozen
class Look:
    """Answer of one server about its partitions, by group; `problem` says why it told nothing, else it is ""."""

    server: int
    address: str
    replicas: Mapping[int, ReplicaLine]
    problem: str = ""


@frozen
class ReplicaView:
    """One replica of a partition, as its server (`own`) and the partition's leader (`seen`) tell it.

    `own` is None if its server told nothing, `seen` if no leader did, or if this is the leader.
    """

    server: int
    leads: bool
    own: ReplicaLine | None
    seen: FollowerLine | None

    @property
    def in_sync(self) -> bool | None:
        """True if the replica is in sync; None if no leader told it."""
        return (
            True if self.leads and self.own is not None else None if self.seen is None else self.seen.in_sync
        )


@frozen
class PartitionView:
    """One partition: where it should be (`line`), its leader (None without one), and its replicas by server."""

    line: PartitionLine
    leader: int | None
    replicas: tuple[ReplicaView, ...]

    @property
    def best(self) -> ReplicaLine | None:
        """The leader's own replica, else the one that has come the furthest; None if no server told of one."""
        own = [one for one in self.replicas if one.own is not None]
        found = max(own, key=lambda one: (one.leads, one.own.end if one.own else 0), default=None)
        return None if found is None else found.own


@frozen
class TopicView:
    """A topic with all its partitions, and what each server told."""

    topic: TopicDescription
    partitions: tuple[PartitionView, ...]
    looks: tuple[Look, ...]


def look_at(client: OperatorClient, pages: Sequence[TopicDescription]) -> TopicView:
    """Ask the servers that hold the topic's partitions, all at once, and put together what they tell.

    A server that cannot be asked is no error: the view says why it told nothing.
    """
    from zraft.operator.requests import MemberList, MemberListing

    lines = [line for page in pages for line in page.partitions]
    held: dict[int, list[int]] = {}
    for line in lines:
        for server in line.servers:
            held.setdefault(server, []).append(line.group)
    looks: list[Look] = []
    if held:
        listing = client.call(MemberList(), MemberListing)
        addresses: dict[int, str] = {member.server: member.address for member in listing.members}
        with ThreadPoolExecutor(max_workers=min(len(held), SERVERS_AT_ONCE)) as pool:
            asked = [
                pool.submit(_look, client, server, addresses.get(server, ""), groups)
                for server, groups in sorted(held.items())
            ]
            looks = [one.result() for one in asked]
    return TopicView(pages[-1], tuple(partition_view(line, looks) for line in lines), tuple(looks))


def _look(client: OperatorClient, server: int, address: str, groups: Sequence[int]) -> Look:
    """Ask one server for what it holds of some groups."""
    from zraft.operator.requests import ReplicaListing, TopicReplicas

    found: dict[int, ReplicaLine] = {}
    try:
        with client.at(parse_address(address, f"server {server}"), TIMEOUT_S) as one:
            for start in range(0, len(groups), GROUPS_PER_REQUEST):
                request = TopicReplicas(tuple(groups[start : start + GROUPS_PER_REQUEST]))
                listing = one.call(request, ReplicaListing)
                if listing.server != server:
                    problem = f"{address}: expected server {server}, found server {listing.server}"
                    return Look(server, address, {}, problem)
                found.update((line.group, line) for line in listing.replicas)
    except ZraftError as error:
        return Look(server, address, {}, str(error))
    return Look(server, address, found)


def partition_view(line: PartitionLine, looks: Sequence[Look]) -> PartitionView:
    """Return one partition from what each server told."""
    own = {look.server: look.replicas[line.group] for look in looks if line.group in look.replicas}
    # A server that was cut off may believe for a moment that it still leads: the newer term counts.
    leading = max(
        (server for server, one in own.items() if one.leads),
        key=lambda server: own[server].term,
        default=None,
    )
    followers = () if leading is None else own[leading].followers
    seen = {int(one.server): one for one in followers}
    servers = sorted({*line.servers, *own, *seen})
    leader = leading if leading is not None else _named_leader(own, looks)
    return PartitionView(
        line,
        leader,
        tuple(ReplicaView(one, one == leading, own.get(one), seen.get(one)) for one in servers),
    )


def _named_leader(own: Mapping[int, ReplicaLine], looks: Sequence[Look]) -> int | None:
    """Return the leader that followers name, if it is a server that could not be asked; else nobody leads."""
    silent = {look.server for look in looks if look.problem}
    newest = max(own.values(), key=lambda one: one.term, default=None)
    leader = None if newest is None or newest.leader is None else int(newest.leader)
    return leader if leader in silent else None
