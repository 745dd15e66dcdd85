"""Founding of a cluster by servers with empty directories, which happens once (D-1).

A roster names the disk instance of every listed server. A server proposes it when every listed server has
shown an empty disk or the very same roster, makes it durable, and says so; nobody votes before *all* listed
servers reported the same durable roster. So a disk that was wiped or replaced in between, which shows another
instance, can neither vote for the old identity nor found a second cluster with part of the first.

A listed server may be told to found no cluster, for example beside the data of a ZooKeeper that nobody has
imported yet. It says so by a roster of no servers, and then no roster comes about: the server waits for a
running cluster that it can join.

Pure. Source: rule D-1 in docs/explanation/rules.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import msgpack

from zraft.groups.roster import Roster
from zraft.raft.messages import AppendEntries, Heartbeat, Message, PreVote, RequestVote
from zraft.transport.messages import Hello, Sender
from zraft_core.ids import Instance, ServerId

HELLO_INTERVAL_MS: Final = 50
"""How often a server greets the others until its cluster is founded."""
CLUSTER_ID_BYTES: Final = 16
DECLINED: Final[Roster] = ()
"""The roster of a server that founds nothing. Older releases see a cluster without them in it, and found nothing either."""


def cluster_id(roster: Roster) -> bytes:
    """Return the id of the cluster that this roster founds."""
    return hashlib.blake2b(
        msgpack.packb(sorted(roster)), digest_size=CLUSTER_ID_BYTES, person=b"zraft-cluster"
    ).digest()


class Bootstrap:
    """Knowledge of one server about the roster until the cluster is founded, or until it has joined one.

    Attributes:
        roster: the roster to which this server agreed; it is durable before it is sent to any server.
        founded: whether votes may be cast: the roster is the same everywhere, or the log already has entries.
        problem: why this server stays out, in words for its operator; None while all is well.
        met: id of a running cluster that does not know this empty disk: it is to be joined (`joining`), not
            founded.
    """

    def __init__(
        self,
        server: ServerId,
        instance: Instance,
        peers: Iterable[ServerId],
        roster: Roster | None,
        founded: bool,
        cluster: bytes | None = None,
        *,
        founds: bool = True,
    ) -> None:
        """Begin with the roster that the disk holds.

        Args:
            peers: the servers that found the cluster together.
            founded: whether the disk says that the cluster is founded.
            founds: whether this server founds a cluster; if not, it waits until one lets it in.
        """
        self._founds = founds
        self._server = server
        self._instance = instance
        self._peers = tuple(p for p in peers if p != server)
        self._seen: dict[ServerId, tuple[Instance, Hello]] = {}
        self._next_hello = 0
        self._untold = False
        """Whether the roster became durable and nobody was told: the others wait for that."""
        self._cluster = cluster
        self.roster = roster
        self._durable = roster is not None
        self.founded = founded
        self.problem: str | None = None
        self.met: bytes | None = None

    def on_hello(self, sender: Sender, hello: Hello) -> Hello | None:
        """Take a peer's greeting; return the answer, if it wants one."""
        if sender.server in self._peers:
            self._seen[sender.server] = (sender.instance, hello)
            self._conclude()
        return self._hello(wants_reply=False) if hello.wants_reply else None

    def _conclude(self) -> None:
        if self.founded or self.met is not None:
            return
        if self.roster is None:
            self._agree()
        if self.roster is not None:
            self._confirm(dict(self.roster))

    def _agree(self) -> None:
        """Take over a roster that lists this very disk, or propose one when every listed server is empty."""
        self.problem = None
        candidate = {self._server: self._instance} | {p: i for p, (i, _) in self._seen.items()}
        for peer, (_, hello) in sorted(self._seen.items()):
            listed = None if hello.roster is None else dict(hello.roster).get(self._server)
            if listed == self._instance and self._founds:
                # The others saw this very disk, empty, when they agreed: it has never voted, so joining late is safe.
                self.roster = hello.roster
                return
            if hello.cluster is not None:
                self.met = hello.cluster
            elif hello.roster and self._founds:
                self.problem = (
                    f"this disk is empty (instance {self._instance.hex()}), but server {peer} belongs to a cluster "
                    f"that is being founded and lists {'nothing' if listed is None else listed.hex()} as server "
                    f"{self._server}: a wiped or replaced disk neither votes nor serves. Restore the old directory, "
                    f"or, as nothing was stored yet, empty the directories of all servers"
                )
        if (
            self._founds
            and self.met is None
            and self.problem is None
            and not self.declined
            and len(candidate) == len(self._peers) + 1
        ):
            self.roster = tuple(sorted(candidate.items()))

    def _confirm(self, roster: dict[ServerId, Instance]) -> None:
        """Found the cluster when all listed servers have reported this roster as durable.

        It is also founded if one of them knows it to be: that server has heard it from all, this one among
        them. If a disk is lost right after the founding, servers that had not heard of it yet must not wait
        for that disk, because without their votes none may lead.
        """
        self.problem = None
        agreed = self._durable
        for peer in self._peers:
            instance, hello = self._seen.get(peer, (None, None))
            if instance is not None and instance != roster.get(peer):
                listed = roster.get(peer)
                self.problem = (
                    f"server {peer} shows disk {instance.hex()}, but the roster agreed on lists "
                    f"{'nothing' if listed is None else listed.hex()}: its directory was replaced while the cluster "
                    f"was being founded. Restore it, or empty the directories of all servers and start again"
                )
            agreed = agreed and hello is not None and hello.roster == self.roster
        self.founded = agreed and self.problem is None
        if not self.founded and self._durable and self._is_founded_elsewhere():
            self.founded = True
            self.problem = None

    def _is_founded_elsewhere(self) -> bool:
        assert self.roster is not None
        cluster = cluster_id(self.roster)
        return any(hello.cluster == cluster for _, hello in self._seen.values())

    @property
    def unheard(self) -> tuple[ServerId, ...]:
        """The listed servers that have said nothing yet, while that keeps this one from founding the cluster."""
        if self.founded or self.met is not None:
            return ()
        return tuple(peer for peer in self._peers if peer not in self._seen)

    @property
    def declines(self) -> bool:
        """True if this server waits for a cluster that it can join, and founds none."""
        return not self._founds and self.roster is None and not self.founded and self.met is None

    @property
    def declined(self) -> tuple[ServerId, ...]:
        """The listed servers that found no cluster, while that keeps this one from founding it."""
        if self.founded or self.met is not None:
            return ()
        return tuple(peer for peer, (_, hello) in sorted(self._seen.items()) if hello.roster == DECLINED)

    def to_make_durable(self) -> Roster | None:
        """Return the roster to write now; None if there is none or it is durable."""
        if self.roster is None and self._founds and not self._peers and not self.founded:
            self.roster = ((self._server, self._instance),)
        return None if self._durable else self.roster

    def roster_durable(self) -> None:
        """Take note that the roster's record is durable."""
        self._durable = self._untold = True
        self._conclude()

    def admits(self, message: Message, *, from_member: bool) -> bool:
        """Return whether a consensus message may count although this server does not know the cluster to be founded.

        Before the roster is known to be the same everywhere no server votes (D-1). But a leader can only
        exist if it is, and following one is safe.
        """
        if from_member and isinstance(message, (AppendEntries, Heartbeat)):
            self.on_leader()
        return self.founded or not isinstance(message, (PreVote, RequestVote))

    def on_leader(self) -> None:
        """Take note that a leader of this roster was heard, so other servers have founded the cluster already."""
        self.founded = True

    def welcomed(self, cluster: bytes) -> None:
        """Take note that a running cluster has let this disk in, so there is nothing to found."""
        self._cluster = cluster
        self.founded = True
        self.problem = None

    def hellos(self, now: int) -> Iterable[tuple[ServerId, Hello]]:
        """Return the greetings to send now, by receiver; once the cluster is founded, only one that says so."""
        if self.met is not None:
            return []
        if not self._untold and (self.founded or now < self._next_hello):
            return []
        self._untold = False
        self._next_hello = now + HELLO_INTERVAL_MS
        hello = self._hello(wants_reply=not self.founded)
        return [(peer, hello) for peer in self._peers]

    def _hello(self, *, wants_reply: bool) -> Hello:
        said = DECLINED if self.declines else self.roster if self._durable else None
        return Hello(self.cluster, said, wants_reply)

    @property
    def cluster(self) -> bytes | None:
        """The cluster's id once it is founded."""
        if self._cluster is None and self.founded and self.roster is not None:
            self._cluster = cluster_id(self.roster)
        return self._cluster
