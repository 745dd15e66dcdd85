"""Joining of an empty disk to a running cluster: that of a new server, or one that replaces a lost disk (D-1).

It neither votes nor founds anything. It tells every server it knows that it is empty; the leader makes its
disk a member, as a learner, and says so. From then on it is brought up to date like any follower, and votes
when the leader promotes it. The list of servers with which it was started may be old, and the leader may not
be on it: a member that does not lead answers with the list of members, and the disk asks these, too.

Pure. Source: rule D-1 in docs/explanation/rules.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zraft.raft.membership.value import Membership
from zraft.transport.messages import Join, NotMember, Welcome
from zraft_core.ids import Instance, ServerId

JOIN_INTERVAL_MS: Final = 200
"""How often an empty disk asks to be let in."""


def introduction(cluster: bytes, index: int, membership: Membership, server: ServerId) -> Welcome | None:
    """Return what a member that does not lead answers to an empty disk: the other members. None during a change of members.

    The joiner itself is left out: only the leader knows for sure whether its disk is a member, and has no
    vote (D-1).
    """
    if membership.joint:
        return None
    others = {id: member for id, member in membership.members.items() if id != server}
    return Welcome(cluster, index, Membership(others).encode()) if others else None


class Joining:
    """The way of one empty server into a cluster.

    Attributes:
        cluster: the cluster that it asks to let it in; None while it has not met one.
        membership: the members that the leader's welcome named; None before.
        members: the members of the cluster, as far as a member said while this server was outside; None
            before.
        waiting: what it waits for, in words for its operator; None before it met a cluster, and when it was
            let in.
        problem: why it stays outside, in words for its operator; None if nothing is wrong.
    """

    def __init__(
        self,
        server: ServerId,
        instance: Instance,
        peers: Iterable[ServerId],
        address: str,
        features: int,
        cluster: bytes | None,
    ) -> None:
        self._server = server
        self._instance = instance
        self._peers = tuple(p for p in peers if p != server)
        self._address = address
        self._features = features
        self._next_at = 0
        self.cluster = cluster
        self.membership: Membership | None = None
        self.members: Membership | None = None
        self.waiting: str | None = None
        self.problem: str | None = None
        if cluster is not None:
            self._wait()

    def met(self, cluster: bytes) -> None:
        """Take note that a peer belongs to a running cluster."""
        if self.cluster is None:
            self.cluster = cluster
            self._wait()

    def _wait(self) -> None:
        assert self.cluster is not None
        self.waiting = (
            f"this disk is empty (instance {self._instance.hex()}); waiting until the leader of cluster "
            f"{self.cluster.hex()} takes it in as server {self._server}"
        )

    def joins(self, now_ms: int) -> list[tuple[ServerId, Join]]:
        """Return the requests to send now, by receiver; none before a cluster was met or after it said welcome."""
        if self.cluster is None or self.membership is not None or now_ms < self._next_at:
            return []
        self._next_at = now_ms + JOIN_INTERVAL_MS
        join = Join(self.cluster, self._address, self._features)
        return [(peer, join) for peer in self._peers]

    def on_welcome(self, welcome: Welcome) -> Membership | None:
        """Take an answer to the request to be let in.

        If the members in it do not include this disk, it only says which servers to ask from now on.

        Returns:
            The membership to start with; None if this is no news, or not for this disk.

        Raises:
            ProtocolError: the membership cannot be read.
        """
        if self.membership is not None or welcome.cluster != self.cluster:
            return None
        membership = Membership.decode(welcome.membership)
        member = membership.members.get(self._server)
        if member is None or member.instance != self._instance:
            self.members = membership
            strangers = membership.members.keys() - {self._server, *self._peers}
            self._peers += tuple(sorted(strangers))
            return None
        if member.voter:
            # The votes it once gave were in the log that is gone (D-1): it must never vote with an empty one.
            self.problem = (
                f"this disk is empty, but the cluster counts on it as a voter (instance {self._instance.hex()}): its "
                "write-ahead log was removed. Move the data directory aside and start with an empty one"
            )
            return None
        self.membership = membership
        self.waiting = self.problem = None
        return membership

    def on_refusal(self, refusal: NotMember) -> None:
        """Take note that an operator has to add this server before the leader lets it in."""
        if self.membership is None and refusal.cluster == self.cluster:
            self.waiting = (
                f"server {self._server} is not a member of cluster {refusal.cluster.hex()}: add it with "
                f"`zraft member add {self._server} {self._address}`, it is taken in at once then"
            )
