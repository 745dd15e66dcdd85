"""Membership of this server in its cluster: how it gets in, what it tells strangers, and how it is removed (D-1).

Until a cluster is known here, `bootstrap` founds one with other empty directories, or `joining` asks a
running one to let this server in. Later the server can learn that it was removed; whether it believes that
depends on who says so.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from zraft.groups.identity import Identity
from zraft.groups.outbox import PeerOutbox
from zraft.groups.recovery import Stored
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.server.coordination.bootstrap import Bootstrap
from zraft.server.coordination.joining import Joining, introduction
from zraft.server.coordination.leadership import Leadership
from zraft.server.coordination.settings import CoordinationSettings
from zraft.transport.messages import Hello, Join, NotMember, PeerMessage, Sender
from zraft.tree.machine import Machine
from zraft_core.ids import Instance, ServerId

ASK_STRANGER_INTERVAL_MS: Final = 100
"""At most once in this time strangers are asked which cluster they belong to."""

ASK_WHETHER_MEMBER_INTERVAL_MS: Final = 500
"""How often a server without a leader asks others whether it is still a member."""

LOOK_WHETHER_LEAVES_INTERVAL_MS: Final = 50
"""How often a server that has been asked to leave looks whether any group of a topic is left on its disk."""

_WHY_NOT: Final = (
    ", the default beside data of a ZooKeeper: `zraft import` them first, on one server and into an empty directory, see "
    "docs/how-to/migration.md; to begin with no znodes, set founds=true"
)


def _listed(servers: Iterable[ServerId]) -> str:
    return ", ".join(map(str, servers))


class Belonging:
    """Membership of one server in its cluster, as it knows it.

    Attributes:
        bootstrap, joining: the two ways in.
        removed: why this server no longer belongs to the cluster, in words for its operator; None while it
            does.
    """

    def __init__(
        self,
        identity: Identity,
        peers: Sequence[ServerId],
        settings: CoordinationSettings,
        stored: Stored,
        addresses: Mapping[ServerId, str],
        outbox: PeerOutbox,
    ) -> None:
        self._identity = identity
        self._outbox = outbox
        self._founds = settings.founds
        self._address = addresses.get(identity.server, "")
        self.removed: str | None = None
        self._removed_at = 0
        self._belonged = False
        self._other_cluster: str | None = None
        """The problem that a peer belongs to another cluster, in words; it matters while this server knows no leader."""
        self._ask_stranger_at = self._ask_outside_at = 0
        self._leaves = False
        self._look_whether_leaves_at = 0
        self.bootstrap = Bootstrap(
            identity.server,
            identity.instance,
            [peer for peer in peers if peer not in settings.observers],
            stored.roster,
            # A term proves it even if no entry reached this disk: no founder has one before all agreed on the roster.
            founded=stored.log.last_index > 0 or (stored.roster is not None and stored.hard_state.term > 0),
            cluster=identity.cluster,
            founds=settings.founds and identity.server not in settings.observers,
        )
        self.joining = Joining(
            identity.server,
            identity.instance,
            peers,
            self._address,
            settings.features,
            # With an empty log and no roster, it was let in, and stopped before the first entry reached it.
            identity.cluster if stored.roster is None and stored.log.last_index == 0 else None,
        )

    # -- what operators see

    @property
    def cluster(self) -> bytes | None:
        """The cluster id, once the roster is agreed and the cluster founded."""
        return self.bootstrap.cluster

    def problem(self, *, led: bool) -> str | None:
        """Return why this server stays out of its cluster, in words for its operator; None if it does not.

        Args:
            led: whether it follows a leader, or leads.
        """
        lonely = None if led else self._other_cluster
        return self.removed or self.bootstrap.problem or self.joining.problem or lonely

    def waiting(self, *, led: bool) -> str | None:
        """Return what an empty server waits for, in words; None once it belongs to a cluster, or was refused."""
        if self.problem(led=led) is not None:
            return None
        bootstrap = self.bootstrap
        if bootstrap.declines and not self._founds:
            return (
                f"this disk is empty, and this server founds no cluster (founds=false{_WHY_NOT}): it waits for one that it "
                "can join"
            )
        if bootstrap.declined:
            return (
                f"this disk is empty, and server {_listed(bootstrap.declined)} founds no cluster (its setting founds is "
                f"false{_WHY_NOT})"
            )
        if bootstrap.unheard:
            return (
                f"this disk is empty, and servers {_listed(bootstrap.unheard)} have not answered: a new cluster is founded "
                f"when all that are listed run; if it runs already, its servers do not know this one before `zraft member "
                f"add {self._identity.server} {self._address or 'HOST:PORT'}`"
            )
        return self.joining.waiting

    # -- what it asks

    def seek(self, now_ms: int) -> None:
        """Send what a server says while it knows no cluster: it greets the listed servers, and asks to be let in."""
        for peer, hello in self.bootstrap.hellos(now_ms):
            self._outbox.send(peer, hello)
        if self.bootstrap.met is not None:
            self.joining.met(self.bootstrap.met)
        for peer, join in self.joining.joins(now_ms):
            self._outbox.send(peer, join)

    def asks_outside(self, now_ms: int) -> bool:
        """Return whether it is time to ask other servers whether this one is still a member, if it has no leader."""
        return now_ms >= self._ask_outside_at

    def ask_whether_member(self, raft: Raft, now_ms: int) -> None:
        """Ask the other members whether this server is still one. A server that was removed while it was away learns it so.

        Nothing else would tell it. If it may not campaign, it sends nothing; and if it may, those whose votes
        it asks for may be no members any more, and none of them may lead.
        """
        if self.removed is None and self.cluster:
            self._ask_outside_at = now_ms + ASK_WHETHER_MEMBER_INTERVAL_MS
            for server in raft.membership.members:
                if server != self._identity.server:
                    self._outbox.send(server, Hello(self.cluster, None, wants_reply=True))

    # -- what others say

    def on_hello(
        self,
        sender: Sender,
        hello: Hello,
        raft: Raft | None,
        leadership: Leadership | None,
        *,
        serving: bool,
        now_ms: int,
    ) -> None:
        """Take a server's greeting, with its disk and its cluster. A disk of this cluster that is no member is told so."""
        server, instance = sender.server, sender.instance
        answer = self.bootstrap.on_hello(sender, hello)
        if answer is not None:
            self._outbox.send(server, answer)
        if raft is None or hello.cluster is None or hello.cluster != self.cluster:
            return
        raft.vouch(server, instance)
        if hello.wants_reply and not raft.membership.has(server, instance):
            if leadership is None and serving and raft.membership_committed:
                # It may not know the server that leads, so this one answers. What this server knows may be old, too: a
                # later configuration with that disk in it overrules the answer.
                self._outbox.send(server, NotMember(hello.cluster, raft.members_changed_index))
            else:
                self.on_stranger(raft, leadership, server, instance, now_ms)

    def on_stranger(
        self, raft: Raft, leadership: Leadership | None, server: ServerId, instance: Instance, now_ms: int
    ) -> None:
        """Answer a server whose consensus message came although it is no member here.

        A leader tells it so, because it may have been removed without knowing. Any other server asks which
        cluster it belongs to: if it is this one, the membership may have changed while this server was away
        (`Raft.vouch`).
        """
        if self.cluster is None:
            return
        if leadership is not None:
            if raft.membership_committed:
                answer = leadership.members.not_member(server, instance, raft, self.cluster, now_ms)
                if answer is not None:
                    self._outbox.send(server, answer)
        elif now_ms >= self._ask_stranger_at:
            self._ask_stranger_at = now_ms + ASK_STRANGER_INTERVAL_MS
            self._outbox.send(server, Hello(self.cluster, None, wants_reply=True))

    def on_join(
        self,
        server: ServerId,
        instance: Instance,
        join: Join,
        raft: Raft,
        leadership: Leadership | None,
        machine: Machine,
        now_ms: int,
    ) -> None:
        """Answer an empty disk that asks to be let in: a leader decides, and any other server says who the members are."""
        answer: PeerMessage | None = None
        if leadership is not None and self.cluster is not None:
            answer = leadership.members.on_join(
                server, instance, join, raft, self.cluster, machine.members, now_ms
            )
        elif join.cluster == self.cluster and raft.membership_committed:
            # It may not know the server that leads.
            answer = introduction(join.cluster, raft.members_changed_index, raft.membership, server)
        if answer is not None:
            self._outbox.send(server, answer)

    def on_not_member(self, server: ServerId, message: NotMember, raft: Raft | None) -> int | None:
        """Take another server's word that this one is no member of its cluster.

        Returns:
            The index of the entry that removed this server, if the word is to be believed; else None.
        """
        cluster = self.cluster
        if raft is None:
            self.joining.on_refusal(message)
        elif cluster is not None and message.cluster != cluster:
            self._note_other_cluster(server, cluster, message.cluster)
        elif message.cluster == cluster:
            known = raft.members_changed_index
            ours = raft.membership.has(self._identity.server, self._identity.instance)
            if message.index > known or (message.index == known and not ours):
                return message.index
        return None

    def _note_other_cluster(self, server: ServerId, ours: bytes, cluster: bytes) -> None:
        """Take note that a peer is in another cluster. Nothing it says counts, but it explains why no server answers."""
        self._other_cluster = (
            f"server {server} belongs to cluster {cluster.hex()}, this disk (instance {self._identity.instance.hex()}) to "
            f"cluster {ours.hex()}: the cluster was restored or recovered without this disk, or the list of "
            f"servers is wrong. To join the new one, move the data directory aside and start with an empty one"
        )

    # -- in and out

    def note_membership(self, membership: Membership, index: int) -> bool:
        """Take note that the state holds the configuration of entry `index`; return whether it removes this server."""
        belongs = membership.has(self._identity.server, self._identity.instance)
        removes = self._belonged and not belongs
        if belongs and index > self._removed_at:
            # The removal that was heard of is older than this: it was that of an earlier server with the same number.
            self.removed = None
        # A server that catches up meets configurations of the time before it was let in.
        self._belonged = belongs
        return removes

    def leaves(self, raft: Raft, machine: Machine, now_ms: int) -> bool:
        """Return whether this member is the next to be removed: it is not wanted, and its disk holds nothing of topics.

        The leader gives it a moment (`membership_keeper.LEAVE_MS`) before it begins.
        """
        server, instance = self._identity.server, self._identity.instance
        wanted = machine.members
        if not wanted or server in wanted or not raft.membership.has(server, instance):
            self._leaves = False
        elif now_ms >= self._look_whether_leaves_at:
            self._look_whether_leaves_at = now_ms + LOOK_WHETHER_LEAVES_INTERVAL_MS
            self._leaves = not machine.registry.groups_on((server, instance))
        return self._leaves

    def remove(self, index: int) -> bool:
        """Take note that entry `index` removed this server; return False if that was known."""
        self._removed_at = max(self._removed_at, index)
        if self.removed is not None:
            return False
        self.removed = (
            f"server {self._identity.server} (instance {self._identity.instance.hex()}) was removed from the "
            f"cluster with entry {index}: it serves nobody. To let it in again, add it with `zraft member add` and "
            "start it with an empty directory"
        )
        return True
