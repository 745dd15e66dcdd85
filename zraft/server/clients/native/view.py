"""A server as its native clients may see it: who leads and where, who belongs, and Zatt's `diagnostic` (Z-14)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from zraft.groups.identity import Identity
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.role import Role
from zraft.tree.machine import Machine
from zraft_core.ids import ServerId
from zraft_core.wire.native.results import Member

SECONDS_KEPT: Final = 10
"""The number of seconds whose counts are kept, as Zatt kept them."""

STATUS: Final = {
    Role.FOLLOWER: "Follower",
    Role.PRE_CANDIDATE: "Candidate",
    Role.CANDIDATE: "Candidate",
    Role.LEADER: "Leader",
}


class Rates:
    """Rates of answered reads and writes, and of appended entries, per second of the last ten seconds."""

    __slots__ = ("_counts", "_last_index", "_second", "appended", "reads", "writes")

    def __init__(self) -> None:
        self._second = 0
        self._counts = (0, 0, 0)
        self._last_index = 0
        self.reads: deque[tuple[int, int]] = deque(maxlen=SECONDS_KEPT)
        """(unix time in s, count) of the seconds in which there was one, oldest first."""
        self.writes: deque[tuple[int, int]] = deque(maxlen=SECONDS_KEPT)
        self.appended: deque[tuple[int, int]] = deque(maxlen=SECONDS_KEPT)

    def turn(self, wall_ms: int, reads: int, writes: int, last_index: int) -> None:
        """Count what one turn answered; `last_index` is that of the log now."""
        second = wall_ms // 1000
        if second != self._second:
            for kept in (self.reads, self.writes, self.appended):
                kept.append((second, 0))
            self._second = second
        appended = max(0, last_index - self._last_index)
        self._last_index = last_index
        for kept, count in ((self.reads, reads), (self.writes, writes), (self.appended, appended)):
            if count:
                kept[-1] = (second, kept[-1][1] + count)


class Server(Protocol):
    """Place of a server in its cluster."""

    @property
    def identity(self) -> Identity:
        """The server's number, instance and boot."""

    @property
    def cluster(self) -> bytes | None:
        """The cluster's id, None before it is founded."""

    @property
    def leader(self) -> ServerId | None:
        """The leader, as far as this server knows."""

    @property
    def leads(self) -> bool:
        """True if this server leads, and may accept what is asked of a leader."""

    @property
    def machine(self) -> Machine:
        """The state that is applied on this server."""

    @property
    def raft(self) -> Raft | None:
        """None before the server belongs to a cluster."""

    def address_of(self, server: ServerId) -> str | None:
        """Return a server's address, None if it is not known."""

    def silent_ms(self, session: int) -> int | None:
        """Return for how many ms nothing of a session was received: here, or anywhere if this server leads.

        None if it does not know.
        """


class ClusterView:
    """Reads a server; decides nothing.

    Args:
        waiting_clients: how many connections have a request that is not answered yet.
    """

    def __init__(self, server: Server, waiting_clients: Callable[[], int]) -> None:
        self._server = server
        self._waiting_clients = waiting_clients
        self.rates = Rates()

    @property
    def server(self) -> ServerId:
        """The server's number."""
        return self._server.identity.server

    @property
    def cluster(self) -> bytes | None:
        """The cluster's id, None before it is founded."""
        return self._server.cluster

    @property
    def leads(self) -> bool:
        """True if this server leads, and may accept what is asked of a leader."""
        return self._server.leads

    def leader_address(self) -> tuple[str, int] | None:
        """Return the leader's host and port; None if either is not known."""
        leader = self._server.leader
        if leader is None:
            return None
        return split_address(self._address_of(leader))

    def _address_of(self, server: ServerId) -> str:
        serving = self._server
        wish = serving.machine.members.get(server)
        if wish is not None and wish.address:
            return wish.address
        member = self._membership.members.get(server)
        return (member.address if member is not None else "") or serving.address_of(server) or ""

    @property
    def _membership(self) -> Membership:
        raft = self._server.raft
        return raft.membership if raft is not None else Membership({})

    def silent_ms(self, session: int) -> int | None:
        """Return for how many ms nothing of a session was received: here, or anywhere if this server leads.

        None if it does not know.
        """
        return self._server.silent_ms(session)

    def members(self) -> tuple[Member, ...]:
        """Return the members by id."""
        leader = self._server.leader
        return tuple(
            [
                Member(server, self._address_of(server), member.role.name.lower(), server == leader)
                for server, member in sorted(self._membership.members.items())
            ]
        )

    def diagnostic(self) -> dict[str, Any]:
        """Return Zatt's fields under Zatt's names."""
        serving = self._server
        raft = serving.raft
        rates = self.rates
        me = self.server
        fields: dict[str, Any] = {
            "status": STATUS[raft.role] if raft is not None else STATUS[Role.FOLLOWER],
            "persist": {
                "votedFor": None if raft is None else raft.voted_for,
                "currentTerm": 0 if raft is None else raft.term,
            },
            "volatile": {
                "leaderId": _pair(split_address(self._address_of(serving.leader)))
                if serving.leader
                else None,
                "cluster": [
                    _pair(split_address(self._address_of(server)))
                    for server in sorted(self._membership.members)
                ],
                "address": _pair(split_address(self._address_of(me))),
            },
            "log": {"commitIndex": 0 if raft is None else raft.commit_index},
            "stats": {
                "read": [{second: count} for second, count in rates.reads],
                "write": [{second: count} for second, count in rates.writes],
                "append": [{second: count} for second, count in rates.appended],
            },
            "server": me,
            "leader": serving.leader,
            "zxid": serving.machine.last_zxid,
            "featureLevel": serving.machine.feature_level,
        }
        if raft is not None and raft.role is Role.LEADER:
            followers = raft.statistics().followers
            fields["leaderStatus"] = {
                "nextIndex": {f.server: f.next_index for f in followers},
                "matchIndex": {f.server: f.match_index for f in followers},
                "waiting_clients": self._waiting_clients(),
            }
        return fields


def split_address(address: str) -> tuple[str, int] | None:
    """Return (host, port) of "HOST:PORT", an IPv6 host without its brackets; None if it is none."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def _pair(address: tuple[str, int] | None) -> list[str | int] | None:
    return None if address is None else list(address)
